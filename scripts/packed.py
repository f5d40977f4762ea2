"""Bytes packed as .xz, and as what base/xz.h unpacks them from."""
import lzma


def squeeze(text):
    """One stream. The dictionary reaches back over all of it, so that repeated
    text is a reference; lc and pb are what suits text."""
    reach = max(4096, 1 << (len(text) - 1).bit_length())
    how = {'id': lzma.FILTER_LZMA2, 'preset': 9 | lzma.PRESET_EXTREME,
           'dict_size': reach, 'lc': 4, 'lp': 0, 'pb': 0}
    return lzma.compress(text, check=lzma.CHECK_CRC32, filters=[how])


def struct_xz(n, packed, indent):
    """A struct xz: n bytes, which were packed to this .xz."""
    lines = (packed[i:i + 19] for i in range(0, len(packed), 19))
    text = ''.join(f'{indent}    "' + ''.join(f'\\{c:03o}' for c in line) +
                   '"\n' for line in lines)
    return f'{{{n}, {len(packed)},\n{text}{indent}}}'
