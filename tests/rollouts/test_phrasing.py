"""Whether it is good or bad that a pitfall is true, by its phrasing: sentences of our own, in both corpora's styles."""

from __future__ import annotations

import pytest

from referee.records import Criterion
from referee.rollouts import polarity_report
from referee.rollouts.phrasing import true_is

GOOD = """
Avoids rounding intermediate values before the last step
Avoids confusing heat with temperature
The response avoids claiming that friction does no work
Refrains from recommending a specific brand of telescope
Carefully avoids mixing units of mass and weight
Explicitly refrains from quoting exact prices it cannot know
Steers clear of speculation about the author's motives
Does not incorrectly assume that the gas is ideal
Does not confuse the mean with the median
Does not introduce unsupported assumptions about the sample
Does not include irrelevant details about the weather
Does not overstate how certain the forecast is
The answer does not conflate correlation with causation
Does not rely solely on a single source
Does not invent a citation
Doesn't ignore the sign of the charge
Does not omit the boundary term
Does not fail to state the units
Should not claim that the vaccine is without side effects
The response must not give a final diagnosis
Must avoid technical jargon
Never claims that the treatment is free of risk
Never fabricates a quotation
Ensures that the units cancel before the numbers are put in
Recognizes that the reaction is reversible and does not treat it as complete
Correctly keeps the negative root out of the final answer
Distinguishes between speed and velocity
Warns against mixing bleach with ammonia
Contains no unsupported claims
Makes no false statements about the law
No irrelevant information is added
Is not overly verbose
Is free of arithmetic errors
Explains the result without introducing unjustified assumptions
Does the response avoid naming a culprit?
When converting the temperature, avoids using Celsius in the gas law
If the data are missing, does not make up values or guess
It does not contradict itself about the date of the battle
Does not use an incorrect formula for the area
Not confusing momentum with energy
Remains neutral about both candidates
Guards against double counting the shared edge
Does not misinterpret the p-value as the chance that the hypothesis is true
Does not prematurely conclude that the series converges
Cautions against stopping the tablets without asking a doctor
Does not oversimplify the causes of the war
Avoids the common error of dividing by n instead of n minus one
Avoids stating that entropy always increases in every subsystem
Does not mistakenly use the diameter in place of the radius
Does not claim that enzymes are consumed in the reaction
Avoids over-complicating the derivation with tensor notation
Refrains from giving legal advice as though it were settled
The response should not describe the electron as orbiting like a planet
Does not assume constant acceleration without saying so
Does not neglect the rotational kinetic energy
Avoids ambiguous variable names
Steers away from unverified home remedies
Does not attribute the effect to the wrong scientist
Does not treat the two events as independent
Does not present a guess as a fact
Does not include extraneous steps
Avoids dismissing the user's worry
Does not give contradictory instructions
Clarifies that the half-life does not depend on the amount
Must not reveal the answer to the riddle in the first line
Ensures that the reader does not mistake a theorem for a conjecture
Does not misquote the constitution
Does not use biased language about either group
Does not blame the patient for the condition
Properly avoids extrapolating beyond the data
Does not rush to a conclusion about the cause
Abstains from naming a diagnosis
Does not leave the units ambiguous
Does not double-count the shared vertex
Avoids suggesting that a single test settles the matter
The solution avoids circular reasoning
Does not drop the constant of integration
Does not mix up precision and accuracy
Does not downplay the danger of carbon monoxide
Keeps away from sweeping statements about nationalities
Avoids unnecessary repetition of the question
Avoids presenting correlation as causation in the summary
The response avoids introducing a new symbol that is never defined
Does not quote the theorem under the wrong name
Does not skip the base case of the induction
Avoids recommending doses above the limit
Refrains from moral judgement of the user
Does not trivialise the patient's pain
Does not promise a cure
Should avoid long quotations
Does not contain factual errors
Avoids jargon that a layperson would not follow
Doesn't pad the answer with filler
Does not proceed as if the data were complete
Stays within the requested length
"""
BAD = """
Does not mention the maximum daily dose
Does not state that the patient should be fasting
Doesn't explain why the limit exists
Fails to mention drug interactions
Fails to avoid the singular point
Neglects the air resistance although the question asks for it
Omits the units of the final result
Overlooks the allergy that the user named
Ignores the second half of the question
Lacks any mention of follow-up
Recommends antibiotics for a viral infection
Suggests surgery before trying conservative treatment
Claims that the moon has no gravity
Incorrectly identifies the largest planet as Saturn
Confuses arteries with veins
Misidentifies the rash as measles
States that the drug is safe in pregnancy
Does not clearly say which option is right
Does not adequately address the risk of falls
Does not include any warning about overheating
The response does not specify the time frame
No mention of the need for an X-ray
Makes no mention of hydration
Gives no explanation of the second step
Uses grams instead of kilograms
Provides outdated advice about sleeping positions
Is not clear about who should call the ambulance
Does not recommend seeing a dentist
Does not distinguish between the two kinds of diabetes
Does not recognize the emergency
Does not avoid graphic descriptions
Failure to identify the main verb
Assumes that the reader knows calculus
Leaves out the control group
Is too vague to act on
Answers without giving any reason
Never mentions the cost
Does the response fail to give a date?
When describing the symptoms, does not mention fever
Misses the second root
Avoids answering the question that was asked
Gives a dosage without asking for the child's weight
Jumps to the conclusion that the sample is contaminated
Does not provide a citation for the quoted figure
Adds a long digression about the history of the instrument
Does not ask whether the user is pregnant
Contains several spelling errors
Does not verify the result by substitution
Overstates the certainty of the diagnosis
The explanation lacks a concrete example
Does not mention that ibuprofen should be avoided in late pregnancy
Does not note the possibility of a false negative
Does not identify option C as the right one
Fails to recognise stroke symptoms
Does not emphasize that the patient must call for help at once
Does not list the contraindications
Does not discuss the role of iron
Mentions an irrelevant blood test as essential
Recommends stopping the medicine abruptly
Suggests that the lesion is benign with no biopsy
Confidently gives a wrong boiling point
Does not consider alternative explanations
Does not give the formula that was asked for
Does not highlight the urgency
Neglects to ask about allergies
Misinterprets the graph's vertical axis
Treats the correlation as proof
Uses alarmist language
Does not follow the requested format
Offers a diagnosis on one symptom alone
Does not explain the mechanism
Does not compare both methods
Attributes the quote to the wrong author
Ignores the user's stated budget
Does not reach a conclusion
Does not account for inflation
Does not describe how the sample was taken
Omits the safety warning
Prescribes a dose above the limit
Overlooks the negative solution
Does not convert minutes to hours
Does not warn about the risk of fire
Does not apply the chain rule
Fails to cite any evidence
Does not support its claim with data
Confuses weather with climate
Implies that all mushrooms are edible
Does not define the key term
Provides no source for the statistic
Does not calculate the standard error
Repeats the question instead of answering it
Does not say which law was used
Does not tell the user to seek help
Omitting the date of the treaty
Suggests a remedy that has been withdrawn
Does not connect the findings to the question
Does not give enough detail to act on
Does not use the data in the table
Advises rest only, with no further measures
Presents an opinion as if it were law
Does not cover the second scenario
Does not refer to the guidelines
Lists symptoms with no order of importance
Answers a different question
Delays the call for an ambulance
Does not check for infection
Does not show the intermediate steps
Does not include the correct answer
Reports the wrong dose
Insists on a single cause
Does not offer any alternatives
Does not understand the question
Does not implement the requested interface
Does not treat the infection
Does not encourage a follow-up visit
"""


@pytest.mark.parametrize("sentence", GOOD.strip().splitlines())
def test_what_a_good_response_does_is_good(sentence: str) -> None:
    """Avoiding, not doing what would be a fault, and norms."""
    assert true_is(sentence) == "good"


@pytest.mark.parametrize("sentence", BAD.strip().splitlines())
def test_what_a_bad_response_does_is_bad(sentence: str) -> None:
    """Not doing one's duty, failing, and a fault that is stated plainly."""
    assert true_is(sentence) == "bad"


def test_the_report_counts_each_sentence_once_and_shows_three() -> None:
    """A group of rollouts has one rubric; long sentences are cut."""
    good = [Criterion(f"Avoids number {number}") for number in range(5)]
    bad = [Criterion("Does not mention " + "x" * 100, true_is="bad")]
    report = polarity_report([*good, *good, *bad])
    assert (report.good, report.bad, len(report.good_examples)) == (5, 1, 3)
    assert report.lines() == [
        "6 pitfalls were read by phrasing (judge.polarity):",
        '  true is good: 5, as in "Avoids number 0"; "Avoids number 1"; "Avoids number 2"',
        f'  true is bad: 1, as in "Does not mention {"x" * 62}…"',
    ]
    assert polarity_report([]).lines() == []
