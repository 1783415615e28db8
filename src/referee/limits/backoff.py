def throttle_delay(a,c): return 1.0*min(20,2**(a-1))*c
def glitch_delay(a,c): return .1*min(20,2**(a-1))*c
