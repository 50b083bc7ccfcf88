/* CRC32C (Castagnoli): by the processor's own instruction where it has one, else by
 * tables, eight bytes a round. */
#include "_kernel.h"

#define POLYNOMIAL 0x82f63b78u /* reversed */

#define STRIP_BYTES ((size_t)1024)

static uint32_t tables[8][256];
static uint32_t strip_tables[4][256]; /* what a byte of a crc becomes behind STRIP_BYTES zeros */

void crc32c_start(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t crc = i;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? POLYNOMIAL : 0);
        tables[0][i] = crc;
    }
    for (int t = 1; t < 8; t++)
        for (int i = 0; i < 256; i++)
            tables[t][i] = tables[t - 1][i] >> 8 ^ tables[0][tables[t - 1][i] & 0xff];
    for (unsigned t = 0; t < 4; t++)
        for (uint32_t i = 1; i < 256; i++) {
            uint32_t lowest = i & -i, crc = lowest << 8 * t;
            if (i == lowest) {
                for (size_t zero = 0; zero < STRIP_BYTES; zero++)
                    crc = crc >> 8 ^ tables[0][crc & 0xff];
                strip_tables[t][i] = crc;
            } else { /* the sum of its bits */
                strip_tables[t][i] = strip_tables[t][i - lowest] ^ strip_tables[t][lowest];
            }
        }
}

static uint32_t crc_by_tables(uint32_t crc, const uint8_t *p, size_t length)
{
    for (; length >= 8; p += 8, length -= 8) {
        uint32_t low = crc ^ ((uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 |
                              (uint32_t)p[3] << 24);
        crc = tables[7][low & 0xff] ^ tables[6][low >> 8 & 0xff] ^ tables[5][low >> 16 & 0xff] ^
              tables[4][low >> 24] ^ tables[3][p[4]] ^ tables[2][p[5]] ^ tables[1][p[6]] ^
              tables[0][p[7]];
    }
    for (; length; p++, length--)
        crc = crc >> 8 ^ tables[0][(crc ^ *p) & 0xff];
    return crc;
}

#if defined(__x86_64__) && defined(__GNUC__)
static uint32_t behind_strip(uint64_t crc)
{
    return strip_tables[0][crc & 0xff] ^ strip_tables[1][crc >> 8 & 0xff] ^
           strip_tables[2][crc >> 16 & 0xff] ^ strip_tables[3][crc >> 24 & 0xff];
}

static inline uint64_t load_eight(const uint8_t *p)
{
    uint64_t part;
    memcpy(&part, p, 8);
    return part;
}

/* The instruction takes one cycle but its result is there only after three: so three strips
 * that lie behind one another are summed side by side, and joined. */
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t start,
                                                                     const uint8_t *p,
                                                                     size_t length)
{
    uint64_t crc = start;
    for (; length >= 3 * STRIP_BYTES; p += 3 * STRIP_BYTES, length -= 3 * STRIP_BYTES) {
        uint64_t second = 0, third = 0;
        for (size_t at = 0; at < STRIP_BYTES; at += 8) {
            crc = __builtin_ia32_crc32di(crc, load_eight(p + at));
            second = __builtin_ia32_crc32di(second, load_eight(p + STRIP_BYTES + at));
            third = __builtin_ia32_crc32di(third, load_eight(p + 2 * STRIP_BYTES + at));
        }
        crc = behind_strip(behind_strip(crc) ^ second) ^ third;
    }
    for (; length >= 8; p += 8, length -= 8)
        crc = __builtin_ia32_crc32di(crc, load_eight(p));
    for (; length; p++, length--)
        crc = __builtin_ia32_crc32qi((uint32_t)crc, *p);
    return (uint32_t)crc;
}
#endif

uint32_t crc32c(uint32_t before, const uint8_t *p, size_t length)
{
    uint32_t crc = ~before;
#if defined(__x86_64__) && defined(__GNUC__)
    if (__builtin_cpu_supports("sse4.2"))
        return ~crc_by_instruction(crc, p, length);
#endif
    return ~crc_by_tables(crc, p, length);
}

uint32_t crc32c_by_tables(uint32_t before, const uint8_t *p, size_t length)
{
    return ~crc_by_tables(~before, p, length);
}
