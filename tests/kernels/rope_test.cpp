// rope against sines and cosines of the library in double.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(rope_kernels)

namespace {

using namespace prun;
using namespace prun::test;

using Extents = std::vector<std::int64_t>;
constexpr DType types[] = {DType::f64, DType::f32, DType::bf16};
const std::vector<Extents> shapes = {{1, 1, 1, 3, 2}, {2, 5, 3, 4, 6}, {3, 9, 2, 3, 64}, {2, 3, 1, 5, 130}};

std::vector<double> rotated(const Value& x, double base, bool inverse, std::int64_t first) {
  const Extents& d = x.dims();
  const auto width = static_cast<std::size_t>(d[4]), pairs = width / 2;
  std::vector<double> y = x.numbers();
  for (std::size_t i = 0; i < x.size(); i += width) {
    const auto vector = static_cast<std::int64_t>(i / width);
    if (vector % d[3] == d[3] - 1) continue;  // the value
    const double position = static_cast<double>(first + vector / (d[3] * d[2]) % d[1]);
    for (std::size_t p = 0; p < pairs; ++p) {
      double angle = position * std::pow(base, -2.0 * static_cast<double>(p) / static_cast<double>(width));
      if (inverse) angle = -angle;
      y[i + p] = x[i + p] * std::cos(angle) - x[i + p + pairs] * std::sin(angle);
      y[i + p + pairs] = x[i + p + pairs] * std::cos(angle) + x[i + p] * std::sin(angle);
    }
  }
  return y;
}

Call rope_call(const Value& x, DType type, std::int64_t inverse, std::int64_t first) {
  return {"rope", {x, Value(type, x.dims())}, {{.f = 10000.0}, {.i = inverse}}, {{0, 1, first}}};
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
    for (std::int64_t inverse : {0, 1})
      for (std::int64_t first : {0, 3, 131'072, 900'000}) {
        const Call call = rope_call(x, type, inverse, first);
        // Far out, a rounding of the frequency in the reference is worth `position` roundings of the angle.
        const double far = 4e-16 * static_cast<double>(first);
        expect_close(run(set, call)[1], rotated(x, 10000.0, inverse, first), tolerance(type) + far, "y");
        expect_batch_free(set, call, {0, 1});
      }
  });
}

TEST(Rope, ValuesStayBitForBit) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    const Value x = random_value(type, dims, 1);
    const Value y = run(set, rope_call(x, type, 0, 77))[1];
    const auto width = static_cast<std::size_t>(dims[4]), packed = static_cast<std::size_t>(dims[3]);
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (i / width % packed != packed - 1) continue;
      ASSERT_EQ(x[i], y[i]);
    }
  });
}

TEST(Rope, InverseTurnsBack) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    const Value x = random_value(type, dims, 1);
    const Value there = run(set, rope_call(x, type, 0, 1000))[1];
    expect_close(run(set, rope_call(there, type, 1, 1000))[1], x.numbers(), 2 * tolerance(type), "x");
  });
}

// A sequence cut in two, as context parallelism does, gives the bits of the whole.
TEST(Rope, ShardsOfTheSequenceGiveTheSameBits) {
  for_cases([](const InstructionSet& set, DType type, const Extents& dims) {
    if (dims[1] < 2) return;
    const Value x = random_value(type, {1, dims[1], dims[2], dims[3], dims[4]}, 1);
    const Value whole = run(set, rope_call(x, type, 0, 0))[1];
    const std::size_t row = x.size() / static_cast<std::size_t>(dims[1]);
    for (std::int64_t s = 0; s < dims[1]; ++s) {
      Value part(type, {1, 1, dims[2], dims[3], dims[4]});
      for (std::size_t i = 0; i < row; ++i) part.set(i, x[static_cast<std::size_t>(s) * row + i]);
      const Value y = run(set, rope_call(part, type, 0, s))[1];
      for (std::size_t i = 0; i < row; ++i) ASSERT_EQ(y[i], whole[static_cast<std::size_t>(s) * row + i]);
    }
  });
}

}  // namespace
