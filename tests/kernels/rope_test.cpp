// rope and rope_grad against sines and cosines of the library in double.
#include <algorithm>
#include <numbers>

#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(rope_kernels, rope_test)

namespace prun::test::rope_test {
namespace {

using Extents = std::vector<std::int64_t>;
constexpr DType types[] = {DType::f64, DType::f32, DType::bf16, DType::f16};
const std::vector<Extents> shapes = {{1, 1, 1, 3, 2}, {2, 5, 3, 4, 6}, {3, 9, 2, 3, 64}, {2, 3, 1, 5, 130}};

// Base 10000, as Llama 3.1 slows it down where half of the pairs are concerned, all alike, and as YaRN does
// it.
std::vector<Attr> attrs_of(double factor, double high, double original, std::int64_t scaling,
                           double query_scale = 1, double key_scale = 1) {
  return {{.f = 10000.0},     {.f = factor},    {.f = 1.0}, {.f = high}, {.f = original}, {.i = scaling},
          {.f = query_scale}, {.f = key_scale}, {.i = 0},   {.i = 0},    {.f = 0.0},      {.f = 1.0}};
}
// Each pair is slower by a number of its own.
std::vector<Attr> listed() {
  std::vector<Attr> attrs = attrs_of(1, 4, 8192, 4);
  for (int pair = 0; pair < 65; ++pair) attrs.push_back({.f = 1 + 0.37 * pair});
  return attrs;
}
const std::vector<std::vector<Attr>> turns = {attrs_of(1, 4, 8192, 0), attrs_of(8, 4, 512, 0),
                                              attrs_of(8, 4, 512, 1, 0.75),
                                              attrs_of(8, 32, 512, 2, 1.5, 1.25), listed()};

// As transformers has YaRN, of heads `width` wide.
double by_pairs(const std::vector<Attr>& turn, double exponent, double width) {
  const auto correction = [&](double rounds) {
    return width * std::log(turn[4].f / (rounds * 2 * std::numbers::pi)) / (2 * std::log(turn[0].f));
  };
  const double low = std::max(std::floor(correction(turn[3].f)), 0.0);
  double high = std::min(std::ceil(correction(turn[2].f)), width - 1);
  if (low == high) high += 0.001;
  const double ramp = std::clamp((-exponent * width / 2 - low) / (high - low), 0.0, 1.0);
  return std::pow(turn[0].f, exponent) * (ramp / turn[1].f + (1 - ramp));
}

// As transformers has it, by wavelengths.
double frequency(const std::vector<Attr>& turn, double exponent, double width) {
  if (turn[5].i == 1) return std::pow(turn[0].f, exponent) / turn[1].f;
  if (turn[5].i == 2) return by_pairs(turn, exponent, width);
  if (turn[5].i == 4)
    return std::pow(turn[0].f, exponent) /
           turn[12 + static_cast<std::size_t>(std::lround(-exponent * width / 2))].f;
  const double plain = std::pow(turn[0].f, exponent), length = 2 * std::numbers::pi / plain;
  if (turn[1].f == 1.0 || length < turn[4].f / turn[3].f) return plain;
  if (length > turn[4].f / turn[2].f) return plain / turn[1].f;
  const double smooth = (turn[4].f / length - turn[2].f) / (turn[3].f - turn[2].f);
  return (1 - smooth) * plain / turn[1].f + smooth * plain;
}

std::vector<double> rotated(const Value& x, const std::vector<Attr>& turn, bool inverse, std::int64_t first) {
  const Extents& d = x.dims();
  const auto width = static_cast<std::size_t>(d[4]), pairs = width / 2;
  std::vector<double> y = x.numbers();
  for (std::size_t i = 0; i < x.size(); i += width) {
    const auto vector = static_cast<std::int64_t>(i / width);
    if (vector % d[3] == d[3] - 1) continue;  // the value
    const double scale = turn[vector % d[3] == d[3] - 2 ? 7 : 6].f;
    const double position = static_cast<double>(first + vector / (d[3] * d[2]) % d[1]);
    for (std::size_t p = 0; p < pairs; ++p) {
      double angle = position * frequency(turn, -2.0 * static_cast<double>(p) / static_cast<double>(width),
                                          static_cast<double>(width));
      if (inverse) angle = -angle;
      y[i + p] = scale * (x[i + p] * std::cos(angle) - x[i + p + pairs] * std::sin(angle));
      y[i + p + pairs] = scale * (x[i + p + pairs] * std::cos(angle) + x[i + p] * std::sin(angle));
    }
  }
  return y;
}

// Queries, keys and values apart, for x of these dimensions.
std::vector<Value> apart(DType type, const Extents& x) {
  const Extents keys = {x[0], x[1], x[2], x[4]};
  return {Value(type, {x[0], x[1], x[2], x[3] - 2, x[4]}), Value(type, keys), Value(type, keys)};
}

Call rope_call(const Value& x, DType type, std::int64_t first, const std::vector<Attr>& turn = turns[0]) {
  std::vector<Value> operands = apart(type, x.dims());
  operands.insert(operands.begin(), x);
  return {"rope", operands, turn, {{0, 1, first}, {1, 1, first}, {2, 1, first}, {3, 1, first}}};
}

// Of the results of a rope_call.
Call grad_call(const std::vector<Value>& turned, DType type, std::int64_t first,
               const std::vector<Attr>& turn = turns[0]) {
  return {"rope_grad",
          {turned[1], turned[2], turned[3], Value(type, turned[0].dims())},
          turn,
          {{0, 1, first}, {1, 1, first}, {2, 1, first}, {3, 1, first}}};
}

// The numbers of q, k and v, packed.
std::vector<double> packed(const std::vector<Value>& turned) {
  const Extents& d = turned[0].dims();
  const auto width = static_cast<std::size_t>(d[4]), slots = static_cast<std::size_t>(d[3]);
  std::vector<double> x;
  for (std::size_t group = 0; group < turned[0].size() / (slots * width); ++group)
    for (std::size_t slot = 0; slot < slots; ++slot)
      for (std::size_t i = 0; i < width; ++i)
        x.push_back(slot + 2 < slots ? turned[1][(group * (slots - 2) + slot) * width + i]
                                     : turned[slot + 2 == slots ? 2 : 3][group * width + i]);
  return x;
}

void expect_close(const std::vector<double>& got, const std::vector<double>& want, double tolerance) {
  expect_close(Value(DType::f64, {static_cast<std::int64_t>(got.size())}, got), want, tolerance, "x");
}

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (DType type : types)
      for (const Extents& dims : shapes) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " width " + std::to_string(dims.back()));
        body(set, type, dims);
      }
}

TEST(Rope, TurnsPairsByTheirPosition) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    const Value x = random_value(type, dims, 1);
    for (const std::vector<Attr>& turn : turns)
      for (std::int64_t first : {0, 3, 131'072, 900'000}) {
        const Call call = rope_call(x, type, first, turn);
        // Far out, a rounding of the frequency in the reference is worth `position` roundings of the angle.
        const double far = 4e-16 * static_cast<double>(first);
        expect_close(packed(run(set, call)), rotated(x, turn, false, first), tolerance(type) + far);
        expect_batch_free(set, call, {0, 1, 2, 3});
      }
  });
}

TEST(Rope, GradientTurnsTheOtherWay) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    const Value x = random_value(type, dims, 1);
    for (const std::vector<Attr>& turn : turns)
      for (std::int64_t first : {0, 3, 131'072, 900'000}) {
        std::vector<Value> gradients = run(set, rope_call(x, type, first, turn));
        const Value dy(type, dims, packed(gradients));
        const Call call = grad_call(gradients, type, first, turn);
        const double far = 4e-16 * static_cast<double>(first);
        expect_close(run(set, call)[3].numbers(), rotated(dy, turn, true, first), tolerance(type) + far);
        expect_batch_free(set, call, {0, 1, 2, 3});
      }
  });
}

TEST(Rope, ValuesStayBitForBit) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    const Value x = random_value(type, dims, 1);
    const std::vector<Value> turned = run(set, rope_call(x, type, 77));
    const Value back = run(set, grad_call(turned, type, 77))[3];
    const std::vector<double> there = packed(turned);
    const auto width = static_cast<std::size_t>(dims[4]), slots = static_cast<std::size_t>(dims[3]);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i / width % slots != slots - 1) continue;
      ASSERT_EQ(x[i], there[i]);
      ASSERT_EQ(x[i], back[i]);
    }
  });
}

// A sequence cut in two, as context parallelism does, gives the bits of the whole.
TEST(Rope, ShardsOfTheSequenceGiveTheSameBits) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    if (dims[1] < 2) return;
    const Value x = random_value(type, {1, dims[1], dims[2], dims[3], dims[4]}, 1);
    const std::vector<Value> there = run(set, rope_call(x, type, 0));
    const std::vector<double> whole = packed(there);
    const Value back = run(set, grad_call(there, type, 0))[3];
    const std::size_t row = x.size() / static_cast<std::size_t>(dims[1]);
    for (std::int64_t s = 0; s < dims[1]; ++s) {
      const std::size_t at = static_cast<std::size_t>(s) * row;
      Value part(type, {1, 1, dims[2], dims[3], dims[4]});
      for (std::size_t i = 0; i < row; ++i) part.set(i, x[at + i]);
      const std::vector<Value> turned = run(set, rope_call(part, type, s));
      const Value turned_back = run(set, grad_call(turned, type, s))[3];
      const std::vector<double> y = packed(turned);
      for (std::size_t i = 0; i < row; ++i) {
        ASSERT_EQ(y[i], whole[at + i]);
        ASSERT_EQ(turned_back[i], back[at + i]);
      }
    }
  });
}

}  // namespace
}  // namespace prun::test::rope_test
