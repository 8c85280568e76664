"""Pieces of JSON: the helpers of the kernel ``json_read`` that know nothing of columns.

Every helper takes addresses, ``at`` and ``end``, and looks at no byte beyond; it returns the address after
what it has read, or -1 for what is no JSON, or is not common.
"""

from __future__ import annotations

import numpy as np

from minikafka.records.kernels.jit import copy_memory, inner, peek_i64, peek_u8, poke_u8
from minikafka.records.kernels.json_ops import DIGITS, EXPONENT, IS_WHOLE, NEGATIVE
from minikafka.records.kernels.signatures import Longs, Number

SKIPPED_DEPTH_MAX = 60
POWER_MIN = -342
POWER_MAX = 308

_QUOTES = 0x2222222222222222
_BACKSLASHES = 0x5C5C5C5C5C5C5C5C
_BLANKS = 0x2020202020202020
_ONES = 0x0101010101010101
_HIGH_BITS = 0x8080808080808080
_LOW_32 = 0xFFFFFFFF
_ALL_BITS = 0xFFFFFFFFFFFFFFFF
DAY_US = 86_400_000_000
NULL_WORD = 0x6C6C756E
TRUE_WORD = 0x65757274
FALSE_WORD = 0x65736C6166


@inner
def skip_blanks(at: Number, end: Number) -> Number:
    """Return the address of the first byte that is no blank, or the end."""
    while at < end:
        byte = peek_u8(at)
        if byte != 0x20 and byte != 0x0A and byte != 0x0D and byte != 0x09:
            break
        at += 1
    return at


@inner
def plain_end(at: Number, end: Number) -> Number:
    """Return the address of the first quote, backslash or control character, or the end."""
    while end - at >= 8:
        word = np.uint64(peek_i64(at))
        quotes = word ^ np.uint64(_QUOTES)
        backslashes = word ^ np.uint64(_BACKSLASHES)
        special = (
            ((quotes - np.uint64(_ONES)) & ~quotes)
            | ((backslashes - np.uint64(_ONES)) & ~backslashes)
            | ((word - np.uint64(_BLANKS)) & ~word)
        ) & np.uint64(_HIGH_BITS)
        if special != np.uint64(0):
            break
        at += 8
    while at < end:
        byte = peek_u8(at)
        if byte == 0x22 or byte == 0x5C or byte < 0x20:
            break
        at += 1
    return at


@inner
def hex_digits(at: Number) -> Number:
    """Return the number of four hexadecimal digits, or -1."""
    number = np.int64(0)
    for i in range(4):
        byte = peek_u8(at + i)
        if 0x30 <= byte <= 0x39:
            digit = byte - 0x30
        elif 0x41 <= byte <= 0x46:
            digit = byte - 0x37
        elif 0x61 <= byte <= 0x66:
            digit = byte - 0x57
        else:
            return np.int64(-1)
        number = number << 4 | digit
    return number


@inner
def simple_escape(byte: Number) -> Number:
    """Return the character of an escape of one letter, or -1."""
    if byte == 0x22 or byte == 0x5C or byte == 0x2F:
        return np.int64(byte)
    if byte == 0x6E:
        return np.int64(0x0A)
    if byte == 0x74:
        return np.int64(0x09)
    if byte == 0x72:
        return np.int64(0x0D)
    if byte == 0x62:
        return np.int64(0x08)
    if byte == 0x66:
        return np.int64(0x0C)
    return np.int64(-1)


@inner
def skip_string(at: Number, end: Number) -> Number:
    """Return the address after a string, whose first byte, behind the quote, is at ``at``."""
    while True:
        at = plain_end(at, end)
        if at >= end:
            return np.int64(-1)
        byte = peek_u8(at)
        at += 1
        if byte == 0x22:
            return at
        if byte != 0x5C or at >= end:
            return np.int64(-1)
        if peek_u8(at) == 0x75:
            if end - at < 5 or hex_digits(at + 1) < 0:
                return np.int64(-1)
            at += 5
        elif simple_escape(peek_u8(at)) < 0:
            return np.int64(-1)
        else:
            at += 1


@inner
def poke_utf8(target: Number, code: Number) -> Number:
    """Write a character; return the address after it."""
    if code < 0x80:
        poke_u8(target, code)
        return target + 1
    if code < 0x800:
        poke_u8(target, 0xC0 | code >> 6)
        poke_u8(target + 1, 0x80 | code & 63)
        return target + 2
    if code < 0x10000:
        poke_u8(target, 0xE0 | code >> 12)
        poke_u8(target + 1, 0x80 | code >> 6 & 63)
        poke_u8(target + 2, 0x80 | code & 63)
        return target + 3
    poke_u8(target, 0xF0 | code >> 18)
    poke_u8(target + 1, 0x80 | code >> 12 & 63)
    poke_u8(target + 2, 0x80 | code >> 6 & 63)
    poke_u8(target + 3, 0x80 | code & 63)
    return target + 4


@inner
def unescape(at: Number, end: Number, target: Number) -> tuple[Number, Number]:
    """Write a string without its escapes. Return the addresses after it in the source (or -1) and the target.

    The string is whole, and takes no more room without its escapes.
    """
    while True:
        plain = plain_end(at, end)
        copy_memory(target, at, plain - at)
        target += plain - at
        at = plain + 1
        if peek_u8(plain) == 0x22:
            return at, target
        if peek_u8(at) != 0x75:
            poke_u8(target, simple_escape(peek_u8(at)))
            target += 1
            at += 1
            continue
        code = hex_digits(at + 1)
        at += 5
        if 0xDC00 <= code <= 0xDFFF:
            return np.int64(-1), target
        if 0xD800 <= code <= 0xDBFF:
            if end - at < 6 or peek_u8(at) != 0x5C or peek_u8(at + 1) != 0x75:
                return np.int64(-1), target
            low = hex_digits(at + 2)
            if low < 0xDC00 or low > 0xDFFF:
                return np.int64(-1), target
            code = 0x10000 + ((code - 0xD800) << 10 | (low - 0xDC00))
            at += 6
        target = poke_utf8(target, code)


@inner
def read_number(at: Number, end: Number, state: Longs) -> Number:
    """Read a number into ``state``; one of more than 18 digits is refused."""
    state[NEGATIVE] = 0
    if at < end and peek_u8(at) == 0x2D:
        state[NEGATIVE] = 1
        at += 1
    first = at
    digits = np.int64(0)
    count = np.int64(0)
    while at < end and 0x30 <= peek_u8(at) <= 0x39:
        if count < 19:
            digits = digits * 10 + (peek_u8(at) - 0x30)
        count += np.int64(digits != 0)
        at += 1
    if at == first or (peek_u8(first) == 0x30 and at - first > 1):
        return np.int64(-1)
    state[IS_WHOLE] = 1
    exponent = np.int64(0)
    if at < end and peek_u8(at) == 0x2E:
        state[IS_WHOLE] = 0
        at += 1
        first = at
        while at < end and 0x30 <= peek_u8(at) <= 0x39:
            if count < 19:
                digits = digits * 10 + (peek_u8(at) - 0x30)
            count += np.int64(digits != 0)
            at += 1
        exponent = first - at
        if at == first:
            return np.int64(-1)
    if count > 18:
        return np.int64(-1)
    if at < end and peek_u8(at) | 0x20 == 0x65:
        state[IS_WHOLE] = 0
        at += 1
        negative = np.int64(0)
        if at < end and (peek_u8(at) == 0x2D or peek_u8(at) == 0x2B):
            negative = np.int64(peek_u8(at) == 0x2D)
            at += 1
        first = at
        more = np.int64(0)
        while at < end and 0x30 <= peek_u8(at) <= 0x39:
            more = min(more * 10 + (peek_u8(at) - 0x30), np.int64(100_000))
            at += 1
        if at == first:
            return np.int64(-1)
        exponent += -more if negative else more
    state[DIGITS] = digits
    state[EXPONENT] = exponent
    return at


@inner
def product(a: Number, b: Number) -> tuple[Number, Number]:
    """Return the halves, the high one first, of the product of two uint64."""
    low_32, half = np.uint64(_LOW_32), np.uint64(32)
    a_low, a_high = a & low_32, a >> half
    b_low, b_high = b & low_32, b >> half
    low, cross, other = a_low * b_low, a_low * b_high, a_high * b_low
    middle = (low >> half) + (cross & low_32) + (other & low_32)
    high = a_high * b_high + (cross >> half) + (other >> half) + (middle >> half)
    return high, low & low_32 | middle << half


@inner
def double_bits(digits: Number, exponent: Number, powers: Longs) -> Number:
    """Return the bits of the double that is nearest to ``digits`` times ten to the ``exponent``; -1 for one
    that is not normal. By the algorithm of Eisel and Lemire; ``powers`` has the powers of ten.

    Its numbers are uint64: where an int64 overflows, anything may happen.
    """
    if digits == 0:
        return np.int64(0)
    if exponent < POWER_MIN or exponent > POWER_MAX:
        return np.int64(-1)
    one, nine = np.uint64(1), np.uint64(9)
    whole = np.uint64(digits)
    zeros = np.int64(0)
    for step in (32, 16, 8, 4, 2, 1):
        if whole >> np.uint64(64 - step) == np.uint64(0):
            whole <<= np.uint64(step)
            zeros += step
    place = 2 * (exponent - POWER_MIN)
    high, low = product(whole, np.uint64(powers[place]))
    if high & np.uint64(0x1FF) == np.uint64(0x1FF):
        more, _ = product(whole, np.uint64(powers[place + 1]))
        low += more
        if low < more:
            high += one
        if low == np.uint64(_ALL_BITS) and (exponent < -27 or exponent > 55):
            return np.int64(-1)
    upper = high >> np.uint64(63)
    mantissa = high >> upper + nine
    power = (217706 * exponent >> 16) + 63 + np.int64(upper) - zeros + 1023
    if power <= 0:
        return np.int64(-1)
    is_tie = low <= one and -4 <= exponent <= 23 and mantissa & np.uint64(3) == one
    if is_tie and mantissa << upper + nine == high:
        mantissa -= one
    mantissa = mantissa + (mantissa & one) >> one
    if mantissa >= np.uint64(1 << 53):
        mantissa = np.uint64(1 << 52)
        power += 1
    if power >= 0x7FF:
        return np.int64(-1)
    return np.int64(mantissa - np.uint64(1 << 52)) | power << 52


@inner
def digits_of(at: Number, count: Number) -> Number:
    """Return the number of ``count`` digits, or -1."""
    number = np.int64(0)
    for i in range(count):
        digit = peek_u8(at + i) - 0x30
        if digit < 0 or digit > 9:
            return np.int64(-1)
        number = number * 10 + digit
    return number


@inner
def days_at(at: Number) -> Number:
    """Return the days since the epoch of ten bytes ``YYYY-MM-DD``; -1,000,000 for others."""
    none = np.int64(-1_000_000)
    year, month, day = digits_of(at, 4), digits_of(at + 5, 2), digits_of(at + 8, 2)
    if year < 1 or month < 1 or month > 12 or day < 1 or day > 31:
        return none
    if peek_u8(at + 4) != 0x2D or peek_u8(at + 7) != 0x2D:
        return none
    is_leap = year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
    if month == 2:
        most = 28 + np.int64(is_leap)
    else:
        most = 31 - np.int64(month == 4 or month == 6 or month == 9 or month == 11)
    if day > most:
        return none
    # Years that begin in March: a leap day is their last one.
    year -= np.int64(month <= 2)
    month = month - 3 if month > 2 else month + 9
    century = year // 400
    of_century = year - century * 400
    of_year = (153 * month + 2) // 5 + day - 1
    return century * 146_097 + of_century * 365 + of_century // 4 - of_century // 100 + of_year - 719_468


@inner
def zone_offset_us(at: Number, end: Number) -> Number:
    """Return the offset of ``Z``, ``+HH:MM``, ``+HHMM`` or nothing; DAY_US for others."""
    none = np.int64(DAY_US)
    size = end - at
    if size == 0:
        return np.int64(0)
    sign = peek_u8(at)
    if sign == 0x5A:
        return np.int64(0) if size == 1 else none
    if (sign != 0x2B and sign != 0x2D) or (size != 5 and size != 6):
        return none
    if size == 6 and peek_u8(at + 3) != 0x3A:
        return none
    hours, minutes = digits_of(at + 1, 2), digits_of(end - 2, 2)
    if hours < 0 or hours > 23 or minutes < 0 or minutes > 59:
        return none
    offset = (hours * 60 + minutes) * 60_000_000
    return -offset if sign == 0x2D else offset


@inner
def has_word(at: Number, end: Number, word: Number, size: Number) -> Number:
    """Return 1 if the bytes begin with those of ``word``, a little-endian number; 0 if not."""
    if end - at < size:
        return np.int64(0)
    for i in range(size):
        if peek_u8(at + i) != word >> 8 * i & 255:
            return np.int64(0)
    return np.int64(1)


@inner
def skip_scalar(at: Number, end: Number, state: Longs) -> Number:
    """Return the address after a text, number, truth value or null."""
    first = peek_u8(at)
    if first == 0x22:
        return skip_string(at + 1, end)
    if first == 0x2D or 0x30 <= first <= 0x39:
        return read_number(at, end, state)
    if has_word(at, end, np.int64(NULL_WORD), 4) or has_word(at, end, np.int64(TRUE_WORD), 4):
        return at + 4
    return at + 5 if has_word(at, end, np.int64(FALSE_WORD), 5) else np.int64(-1)


@inner
def skip_name(at: Number, end: Number) -> Number:
    """Return the address after a name and its colon."""
    at = skip_blanks(at, end)
    if at >= end or peek_u8(at) != 0x22:
        return np.int64(-1)
    at = skip_string(at + 1, end)
    if at < 0:
        return at
    at = skip_blanks(at, end)
    return at + 1 if at < end and peek_u8(at) == 0x3A else np.int64(-1)


@inner
def skip_ends(at: Number, end: Number, kinds: Number, depth: Number) -> tuple[Number, Number, Number]:
    """Skip what follows a value: brackets that close, and a comma with the name of the next value.

    Return the address after it, and the open levels.
    """
    while at < end:
        byte = peek_u8(at)
        at += 1
        if byte == 0x2C:
            return skip_name(at, end) if kinds & 1 else at, kinds, depth
        if byte != (0x7D if kinds & 1 else 0x5D):
            break
        kinds >>= 1
        depth -= 1
        if depth == 0:
            return at, kinds, depth
        at = skip_blanks(at, end)
    return np.int64(-1), kinds, depth


@inner
def skip_value(at: Number, end: Number, state: Longs) -> Number:
    """Return the address after a value, which is checked, up to SKIPPED_DEPTH_MAX levels."""
    kinds = np.int64(0)  # a bit for each open level: 1 for an object
    depth = np.int64(0)
    while True:
        at = skip_blanks(at, end)
        if at >= end:
            return np.int64(-1)
        first = peek_u8(at)
        if first == 0x7B or first == 0x5B:
            depth += 1
            if depth > SKIPPED_DEPTH_MAX:
                return np.int64(-1)
            kinds = kinds << 1 | np.int64(first == 0x7B)
            at = skip_blanks(at + 1, end)
            if at >= end:
                return np.int64(-1)
            if peek_u8(at) != first + 2:
                if first == 0x7B:
                    at = skip_name(at, end)
                    if at < 0:
                        return at
                continue
        else:
            at = skip_scalar(at, end, state)
            if at < 0 or depth == 0:
                return at
            at = skip_blanks(at, end)
        at, kinds, depth = skip_ends(at, end, kinds, depth)
        if at < 0 or depth == 0:
            return at
