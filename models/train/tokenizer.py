"""Byte-level byte-pair encoding (BPE) with the qwen2 word pattern.

A regular expression cuts text into words, the UTF-8 bytes of a word become
base symbols, and learned merges join neighbours, the earliest merge first:
what GGUF calls `tokenizer.ggml.model = gpt2`, `tokenizer.ggml.pre = qwen2`.

Exact for letters of any script; the few numerals that are not digits count as
letters here and as numbers in the original pattern. Plain Python: fine for
tens of megabytes, not for more.

Source: BPE, arXiv:1508.07909; the byte alphabet is GPT-2's, the pattern
Qwen2's.
"""
import heapq
import json
import re
from collections import Counter, defaultdict
from pathlib import Path

END_OF_TEXT = "<|endoftext|>"  # after each tale
TURN_START = "<|im_start|>"    # ChatML: opens a turn
TURN_END = "<|im_end|>"        # ChatML: closes a turn
SPECIALS = (END_OF_TEXT, TURN_START, TURN_END)

LETTER = r"[^\W\d_]"
WORD = re.compile(
    r"'(?:[sStTmMdD]|[rR][eE]|[vV][eE]|[lL][lL])"  # 's 't 'm 'd 're 've 'll
    rf"|(?:[^\r\n\w]|_)?{LETTER}+"  # letters, one blank or mark before them
    r"|\d"                          # digits one by one
    r"| ?(?:[^\s\w]|_)+[\r\n]*"     # punctuation
    r"|\s*[\r\n]+"                  # line ends
    r"|\s+(?!\S)|\s+")              # blanks; the last joins the next word


def byte_symbols():
    """[256] one visible character a byte, as GPT-2 assigns them: printable
    Latin-1 stands for itself, the other bytes take U+0100 and up in order."""
    visible = {*range(33, 127), *range(161, 173), *range(174, 256)}
    spare = iter(range(256, 512))
    return [chr(b if b in visible else next(spare)) for b in range(256)]


SYMBOL = byte_symbols()
BYTE = {symbol: byte for byte, symbol in enumerate(SYMBOL)}


def join_pair(symbols, pair):
    """symbols, each occurrence of `pair` (left to right) joined into one."""
    out, i = [], 0
    while i < len(symbols):
        if tuple(symbols[i:i + 2]) == pair:
            out.append(pair[0] + pair[1])
            i += 2
        else:
            out.append(symbols[i])
            i += 1
    return out


class Tokenizer:
    """tokens: [n_vocab] strings, a token's id is its place; merges: "a b"
    strings in the order in which they were learned."""

    def __init__(self, tokens, merges):
        self.tokens = list(tokens)
        self.merges = list(merges)
        self.id = {token: i for i, token in enumerate(self.tokens)}
        self._rank = {tuple(m.split(" ")): i for i, m in enumerate(merges)}
        self._special = re.compile(
            "(" + "|".join(re.escape(s) for s in SPECIALS) + ")")
        self._cache = {}  # word -> ids

    @classmethod
    def load(cls, path):
        stored = json.loads(Path(path).read_text(encoding="utf-8"))
        return cls(stored["tokens"], stored["merges"])

    def save(self, path):
        stored = {"tokens": self.tokens, "merges": self.merges}
        Path(path).write_text(json.dumps(stored), encoding="utf-8")

    def encode(self, text):
        """Ids of `text`; specials written out in it count as themselves."""
        ids = []
        for part in self._special.split(text):
            if part in SPECIALS:
                ids.append(self.id[part])
                continue
            for word in WORD.findall(part):
                if word not in self._cache:
                    self._cache[word] = self._encode_word(word)
                ids += self._cache[word]
        return ids

    def _encode_word(self, word):
        symbols = [SYMBOL[byte] for byte in word.encode("utf-8")]
        while len(symbols) > 1:
            pairs = zip(symbols, symbols[1:])
            first = min(pairs, key=lambda p: self._rank.get(p, len(self._rank)))
            if first not in self._rank:
                break
            symbols = join_pair(symbols, first)
        return [self.id[symbol] for symbol in symbols]

    def decode(self, ids):
        """Text of `ids`; bytes that are not UTF-8 become U+FFFD."""
        out = bytearray()
        for i in ids:
            token = self.tokens[i]
            out += (token.encode() if token in SPECIALS
                    else bytes(BYTE[symbol] for symbol in token))
        return out.decode("utf-8", "replace")


def learn(texts, n_vocab):
    """Learns merges until there are n_vocab tokens: 256 bytes, the merged
    ones, the specials last. Among equally frequent pairs the one first in
    string order wins, so one text gives one vocabulary.

    The pair counts live in a heap that is never searched: a changed count is
    pushed anew, and an entry whose count is no longer true is dropped when it
    comes out. Each merge touches only the words that hold its pair."""
    count = Counter()
    for text in texts:
        count.update(WORD.findall(text))
    words = [[SYMBOL[b] for b in word.encode("utf-8")] for word in count]
    times = list(count.values())

    pair_count, holders = Counter(), defaultdict(set)
    for w, symbols in enumerate(words):
        for pair in zip(symbols, symbols[1:]):
            pair_count[pair] += times[w]
            holders[pair].add(w)
    heap = [(-n, pair) for pair, n in pair_count.items()]
    heapq.heapify(heap)

    tokens, merges = list(SYMBOL), []
    known = set(tokens)
    while len(tokens) + len(SPECIALS) < n_vocab and heap:
        n, pair = heapq.heappop(heap)
        if n == 0 or -n != pair_count[pair]:
            continue
        merges.append(" ".join(pair))
        joined = "".join(pair)
        if joined not in known:  # two pairs can spell one token
            known.add(joined)
            tokens.append(joined)
        changed = set()
        for w in holders.pop(pair):
            before, after = words[w], join_pair(words[w], pair)
            for old in zip(before, before[1:]):
                pair_count[old] -= times[w]
                changed.add(old)
            for new in zip(after, after[1:]):
                pair_count[new] += times[w]
                holders[new].add(w)
                changed.add(new)
            words[w] = after
        for touched in changed:
            if pair_count[touched] > 0:
                heapq.heappush(heap, (-pair_count[touched], touched))
    return Tokenizer(tokens + list(SPECIALS), merges)
