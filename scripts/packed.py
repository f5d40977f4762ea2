"""Bytes packed as .xz, and as what base/lzma.h unpacks them from."""
import lzma


def squeeze(text):
    """One stream. The dictionary reaches back over all of it, so that what comes
    again is a reference; lc and pb are what suits text."""
    reach = max(4096, 1 << (len(text) - 1).bit_length())
    how = {'id': lzma.FILTER_LZMA2, 'preset': 9 | lzma.PRESET_EXTREME,
           'dict_size': reach, 'lc': 4, 'lp': 0, 'pb': 0}
    return lzma.compress(text, check=lzma.CHECK_CRC32, filters=[how])


def chunks(stream):
    """The chunks of LZMA2 in a .xz of one block, behind its two headers: each
    says how long it is, and 0 ends them."""
    first = at = 12 + 4 * (stream[12] + 1)
    if stream[12] == 0:  # no block: it is of no bytes
        return b'\0'
    while stream[at] != 0:
        if stream[at] < 128:
            at += 3 + int.from_bytes(stream[at + 1:at + 3], 'big') + 1
        else:
            props = 1 if stream[at] >= 0xc0 else 0
            at += 5 + props + int.from_bytes(stream[at + 3:at + 5], 'big') + 1
    return stream[first:at + 1]


def struct_lzma(n, stream, indent):
    """A struct lzma: n bytes, which were packed to this .xz."""
    packed = chunks(stream)
    lines = (packed[i:i + 19] for i in range(0, len(packed), 19))
    text = ''.join(f'{indent}    "' + ''.join(f'\\{c:03o}' for c in line) +
                   '"\n' for line in lines)
    return f'{{{n}, {len(packed)},\n{text}{indent}}}'
