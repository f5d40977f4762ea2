"""Made-up ChatML dialogues: a request for a tale, answered by its opening.

They teach the turn marks and little else; the request fits the answer only by
title or by the persons and things that occur in it most often.
"""
import re

from tokenizer import TURN_END, TURN_START

ASK_SUBJECT = ("Tell me a story about {}.", "Tell me a tale about {}.",
               "Please tell me a story about {}.",
               "Can you tell me a story about {}?",
               "Write a short fairy tale about {}.",
               "I would like to hear a story about {}.")
ASK_TITLE = ("Tell me the story of {}.", "Tell me the tale of {}.",
             "Do you know the story of {}?")
ASK_ANY = ("Tell me a story.", "Tell me a fairy tale.",
           "Hello! Please tell me a story.", "Once upon a time?")

NOUNS = """king queen prince princess giant witch wizard fairy dragon wolf fox
bear lion cat dog horse bird frog hare mouse donkey goose eagle raven fish
mermaid dwarf troll goblin sultan merchant tailor shoemaker miller farmer
soldier hunter fisherman shepherd robber thief monk beggar castle forest
mountain island ship garden mirror ring sword crown rose tree apple boy
girl""".split()
SUBJECTS = {noun: ("an " if noun[0] in "aeiou" else "a ") + noun
            for noun in NOUNS}
SUBJECTS |= {"sea": "the sea", "gold": "gold", "treasure": "treasure",
             "children": "children", "brothers": "two brothers",
             "sisters": "two sisters"}


def opening(text, n_tokens, limit):
    """The first paragraphs of `text`, at least one, up to `limit` tokens.
    `n_tokens` counts the tokens of a string."""
    taken, total = [], 0
    for paragraph in text.split("\n\n"):
        size = n_tokens(paragraph) + 1
        if taken and total + size > limit:
            break
        taken.append(paragraph)
        total += size
    return "\n\n".join(taken)


def request(title, answer, rng):
    """A user's request that `answer`, from the tale `title`, would suit."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(ASK_TITLE).format(re.sub("^The ", "the ", title))
    count = {noun: len(re.findall(rf"\b{noun}s?\b", answer.lower()))
             for noun in SUBJECTS}
    common = sorted((n for n in count if count[n]), key=count.get,
                    reverse=True)
    if not common or kind > 0.92:
        return rng.choice(ASK_ANY)
    subject = SUBJECTS[common[0]]
    if len(common) > 1 and rng.random() < 0.4:
        subject += " and " + SUBJECTS[common[1]]
    return rng.choice(ASK_SUBJECT).format(subject)


def dialogue(tale, n_tokens, rng):
    """One dialogue as text, or None: the tale has no title or opens with too
    long a paragraph."""
    answer = opening(tale["text"], n_tokens, rng.randint(90, 330))
    if not tale["title"] or n_tokens(answer) > 420:
        return None
    ask = request(tale["title"], answer, rng)
    return (f"{TURN_START}user\n{ask}{TURN_END}\n"
            f"{TURN_START}assistant\n{answer}{TURN_END}\n")
