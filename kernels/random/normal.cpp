// Computes the normal numbers of core/base/random.hpp by the block (Box-Muller): a fixed sequence of IEEE
// operations, so that all builds of this file give the same bits. Logarithm, sine and cosine are written out
// below; multiplication and addition are fused where `fma` stands and nowhere else, roots and quotients are
// correctly rounded. The file is compiled once per instruction set, for the core: core/base/random.cpp
// chooses.
#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu/isa.hpp"
#include "cpu/philox.hpp"

namespace prun::cpu::PRUN_ISA {
namespace {

// A number below 2^52 in the lower bits of these constants is 2^52 plus that number.
constexpr double two52 = 0x1p52;
constexpr std::uint64_t two52_bits = 0x4330000000000000u;

inline std::uint64_t bits_of(double x) { return std::bit_cast<std::uint64_t>(x); }
inline double double_of(std::uint64_t bits) { return std::bit_cast<double>(bits); }

// Returns offset + sign u, where u in [0, 1) is the upper 53 bits of two words. It is exact for signs and
// offsets of 1 and 0, 1 and -1.
inline double unit(std::uint64_t low, std::uint64_t high, double sign, double offset) {
  const double lower = std::fma(double_of(low >> 11 | two52_bits), sign * 0x1p-53, offset - sign * 0.5);
  return std::fma(double_of(high | two52_bits) - two52, sign * 0x1p-32, lower);
}

// Returns -2 log(x) for x in [2^-53, 1]: x = 2^e m with m in [sqrt(1/2), sqrt(2)). With f = m - 1, s = f / (2
// + f) and z = s^2, log(m) = f - s (f - z p(z)) for a polynomial p (minimax, 2^-59); below, f and p have the
// factor 2.
inline double minus_two_log(double x) {
  constexpr std::uint64_t one = 0x3ff0000000000000u, root_half = 0x3fe6a09e667f3bcdu;
  const std::uint64_t shifted = bits_of(x) + (one - root_half);
  const double e = double_of(shifted >> 52 | two52_bits) - (two52 + 1023.0);
  const double m = double_of((shifted & 0x000fffffffffffffu) + root_half);
  const double f2 = std::fma(m, 2.0, -2.0);
  const double s = f2 / (f2 + 4.0);
  const double z = s * s;
  double p = -0x1.2f056aa6ded7dp-2;
  p = std::fma(p, z, -0x1.39a1ba010ad2dp-2);
  p = std::fma(p, z, -0x1.74663eefbc9f1p-2);
  p = std::fma(p, z, -0x1.c71c520936aedp-2);
  p = std::fma(p, z, -0x1.24924941f15b1p-1);
  p = std::fma(p, z, -0x1.999999997fdb3p-1);
  p = std::fma(p, z, -0x1.5555555555592p+0);
  return std::fma(e, -0x1.62e42fefa39efp+0, std::fma(s, std::fma(p, z, f2), -f2));
}

struct Direction {
  double cosine, sine;
};

// Returns the direction of `turns` in [0, 1): the nearest quarter is taken off exactly, and the rest t goes
// through polynomials in t^2 (minimax, 2^-58 and 2^-64).
inline Direction direction(double turns) {
  const double shifted = std::fma(turns, 4.0, 1.5 * two52);  // rounds to a whole number, in the lowest bits
  const std::uint64_t quarter = bits_of(shifted);
  const double t = std::fma(shifted - 1.5 * two52, -0.25, turns);
  const double z = t * t;
  double p = 0x1.e3eed62bb5018p+1;
  p = std::fma(p, z, -0x1.e30063a1b8c00p+3);
  p = std::fma(p, z, 0x1.50782fca3af0ap+5);
  p = std::fma(p, z, -0x1.32d2cce2d538ap+6);
  p = std::fma(p, z, 0x1.466bc67758700p+6);
  p = std::fma(p, z, -0x1.4abbce625be41p+5);
  p = std::fma(p, z, 0x1.1a62633145c07p-52);  // 2 pi comes in two parts: this and the next
  const double sine = std::fma(t, 0x1.921fb54442d18p+2, t * p);
  double q = -0x1.b26fe92617f3fp+0;
  q = std::fma(q, z, 0x1.f9cc6ad2607f7p+2);
  q = std::fma(q, z, -0x1.a6d1ecb743441p+4);
  q = std::fma(q, z, 0x1.e1f50683b4301p+5);
  q = std::fma(q, z, -0x1.55d3c7e3c95bcp+6);
  q = std::fma(q, z, 0x1.03c1f081b5ab0p+6);
  q = std::fma(q, z, -0x1.3bd3cc9be45dep+4);
  const double cosine = std::fma(q, z, 1.0);
  const bool odd = quarter & 1;
  const std::uint64_t c = bits_of(odd ? sine : cosine), s = bits_of(odd ? cosine : sine);
  return {double_of(c ^ ((quarter + 1) & 2) << 62), double_of(s ^ (quarter & 2) << 62)};
}

// Holds blocks of a stream by their four words, each in a lane of 64 bits.
struct Blocks {
  static constexpr int most = 64;
  static_assert(most % (2 * philox_lanes) == 0);
  alignas(vector_bytes) std::uint64_t a[most], b[most], c[most], d[most];

  // May draw a few blocks more than `count`.
  void draw(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, int count) {
    const PhiloxKey key{static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)};
    for (int at = 0; at < count; at += 2 * philox_lanes) {
      PhiloxState x = counters(stream, first + static_cast<std::uint64_t>(at));
      PhiloxState y = counters(stream, first + static_cast<std::uint64_t>(at + philox_lanes));
      philox<10>(x, y, key);
      keep(x, at);
      keep(y, at + philox_lanes);
    }
  }

 private:
  static PhiloxState counters(std::uint64_t stream, std::uint64_t first) {
    Words numbers{};
    for (int l = 0; l < philox_lanes; ++l) numbers[l] = static_cast<std::uint64_t>(l);
    numbers += first;
    return {numbers, numbers >> 32, Words{} + stream, Words{} + (stream >> 32)};
  }
  static void put(std::uint64_t* to, Words words) {
    *reinterpret_cast<VectorOf<std::uint64_t>::Unaligned*>(to) = words & 0xffffffffu;
  }
  void keep(const PhiloxState& x, int at) {
    put(a + at, x.a);
    put(b + at, x.b);
    put(c + at, x.c);
    put(d + at, x.d);
  }
};

// Applies Box-Muller to `count` of the blocks, with put(i, first, second) for each.
template <class Put>
[[gnu::always_inline]] inline void transform(const Blocks& blocks, int count, const Put& put) {
  for (int i = 0; i < count; ++i) {
    const double open_unit = unit(blocks.a[i], blocks.b[i], -1.0, 1.0);  // (0, 1] has a finite logarithm
    const double square = minus_two_log(open_unit);
    const double radius = std::sqrt(square);
    // This is what rounding the root has lost: the rest over twice the root, by a reciprocal that is right to
    // a sixteenth (the bits, negated).
    const double lost = std::fma(-radius, radius, square) * double_of(0x7fce000000000000u - bits_of(radius));
    const Direction to = direction(unit(blocks.c[i], blocks.d[i], 1.0, 0.0));
    put(i, std::fma(radius, to.cosine, lost * to.cosine), std::fma(radius, to.sine, lost * to.sine));
  }
}

}  // namespace

void normal_pair(std::uint64_t seed, std::uint64_t stream, std::uint64_t number, double* out) {
  Blocks blocks;
  blocks.draw(seed, stream, number, 1);
  transform(blocks, 1, [&](int, double first, double second) {
    out[0] = first;
    out[1] = second;
  });
}

void normal_pairs(std::uint64_t seed, std::uint64_t stream, std::uint64_t first, std::int64_t count,
                  double mean, double deviation, float* out) {
  Blocks blocks;
  const auto put = [&](int i, double x, double y) {
    out[2 * i] = static_cast<float>(std::fma(deviation, x, mean));
    out[2 * i + 1] = static_cast<float>(std::fma(deviation, y, mean));
  };
  for (; count >= Blocks::most; count -= Blocks::most, first += Blocks::most, out += 2 * Blocks::most) {
    blocks.draw(seed, stream, first, Blocks::most);
    transform(blocks, Blocks::most, put);
  }
  blocks.draw(seed, stream, first, static_cast<int>(count));
  transform(blocks, static_cast<int>(count), put);
}

}  // namespace prun::cpu::PRUN_ISA
