"""referee: an LLM judge as an RL reward, without making the GPU wait."""
