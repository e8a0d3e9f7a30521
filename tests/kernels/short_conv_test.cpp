// short_conv and its gradients against sums in double; what goes on from a tail has the bits of all at once.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, short_conv_test)

namespace prun::test::short_conv_test {
namespace {

struct Case {
  std::int64_t batch, seq, heads, channels, taps;
  std::vector<std::int64_t> documents = {};

  std::int64_t width() const { return heads * channels; }
  std::size_t at(std::int64_t b, std::int64_t t, std::int64_t c) const {
    return static_cast<std::size_t>((b * seq + t) * width() + c);
  }
  std::int64_t start(std::int64_t b, std::int64_t t) const {
    return documents.empty() ? 0 : documents[static_cast<std::size_t>(b * seq + t)];
  }
};

const std::vector<Case> cases = {{2, 9, 2, 5, 4},
                                 {1, 3, 1, 64, 4},
                                 {2, 20, 3, 30, 3},
                                 {1, 5, 1, 7, 1},
                                 {2, 6, 1, 70, 4, {0, 0, 2, 2, 2, 5, 0, 1, 2, 2, 2, 2}}};

struct Conv {
  const Case& c;
  DType type;
  Value x, weight, dy, documents;

  Conv(const Case& sizes, DType t)
      : c(sizes),
        type(t),
        x(random_value(t, {c.batch, c.seq, c.heads, c.channels}, 1, 2)),
        weight(random_value(t, {c.heads, c.channels, 1, c.taps}, 2)),
        dy(random_value(t, {c.batch, c.seq, c.heads, c.channels}, 3)) {
    if (!c.documents.empty()) documents = integers(DType::i32, {c.batch, c.seq}, c.documents);
  }
  std::size_t tap(std::int64_t channel, std::int64_t before) const {
    return static_cast<std::size_t>(channel * c.taps + c.taps - 1 - before);
  }
  // Calls body(element, its input, the weight) for every product.
  template <class Body>
  void each(Body body) const {
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t t = 0; t < c.seq; ++t)
        for (std::int64_t n = 0; n < c.width(); ++n)
          for (std::int64_t before = 0; before < c.taps && t - before >= c.start(b, t); ++before)
            body(c.at(b, t, n), c.at(b, t - before, n), tap(n, before));
  }
  std::vector<double> sums() const {
    std::vector<double> all(x.size());
    each([&](std::size_t to, std::size_t from, std::size_t by) { all[to] += x[from] * weight[by]; });
    return all;
  }
  std::vector<double> slopes() const {
    std::vector<double> all = sums();
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double s = 1 / (1 + std::exp(-all[i]));
      all[i] = dy[i] * s * (1 + all[i] * (1 - s));
    }
    return all;
  }
  Value like_x() const { return Value(type, x.dims()); }
  Value tail() const { return Value(type, {c.batch, c.taps + 7, c.heads, c.channels}); }
  Call forward() const { return {"short_conv", {x, weight, like_x(), tail(), documents}}; }
};

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Case& c : cases) {
        SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + " channels " + std::to_string(c.channels));
        body(set, Conv(c, type));
      }
}

TEST(ShortConv, MatchesTheFormula) {
  for_cases([](const InstructionSet& set, const Conv& v) {
    std::vector<double> y = v.sums();
    for (double& value : y) value /= 1 + std::exp(-value);
    const std::vector<Value> got = run(set, v.forward());
    expect_close(got[2], y, tolerance(v.type), "y");
    const std::int64_t kept = v.c.taps + 7;
    for (std::int64_t t = std::max<std::int64_t>(0, v.c.seq - kept); t < v.c.seq; ++t)
      EXPECT_EQ(got[3][static_cast<std::size_t>(t % kept * v.c.width())], v.x[v.c.at(0, t, 0)]) << t;
    if (v.c.documents.empty())
      expect_batch_free(set, v.forward(), {0, 2, 3});
    else
      expect_batch_free(set, v.forward(), {0, 2, 3, 4});
  });
}

TEST(ShortConv, GradientsMatchTheFormula) {
  for_cases([](const InstructionSet& set, const Conv& v) {
    const std::vector<double> slopes = v.slopes();
    std::vector<double> dx(v.x.size()), dweight(v.weight.size());
    v.each([&](std::size_t to, std::size_t from, std::size_t by) {
      dx[from] += slopes[to] * v.weight[by];
      dweight[by] += slopes[to] * v.x[from];
    });
    expect_close(run(set, {"short_conv_input_grad", {v.dy, v.x, v.weight, v.documents, v.like_x()}})[4], dx,
                 4 * tolerance(v.type), "dx");
    const DType sum = OpShape::statistics(v.type);
    const Value before = random_value(sum, v.weight.dims(), 7);
    for (std::size_t i = 0; i < dweight.size(); ++i) dweight[i] += before[i];
    const Call call{"short_conv_weight_grad", {v.dy, v.x, v.weight, v.documents, before}};
    expect_close(run(set, call)[4], dweight, 10 * tolerance(sum), "dweight");
    expect_begins(set, call, {4});
    if (v.c.documents.empty())
      expect_batch_free(set, call, {0, 1});
    else
      expect_batch_free(set, call, {0, 1, 3});
  });
}

// Ranks that have runs of positions, each behind those that it reaches, give what one gives: the bits of
// results, and sums of gradients.
TEST(ShortConv, RunsGiveWhatWholeSequencesDo) {
  std::vector<std::int64_t> starts;
  for (std::int64_t i = 0; i < 48; ++i) starts.push_back(i % 24 < 5 ? 0 : i % 24 < 14 ? 5 : 14);
  for (const InstructionSet& set : all_kernels())
    for (const SharedRuns runs : {SharedRuns{24, 2, true}, {24, 2, false}, {24, 4, true}, {24, 3, false}})
      for (const bool apart : {false, true}) {
        const Case c{2, 24, 2, 5, 4, apart ? starts : std::vector<std::int64_t>{}};
        const Conv v(c, DType::f64);
        const std::vector<Attr> attrs = {{.i = runs.rows()}, {.i = runs.chunks()}};
        const Value y = run(set, v.forward())[2],
                    dx = run(set,
                             {"short_conv_input_grad", {v.dy, v.x, v.weight, v.documents, v.like_x()}})[4];
        Value dweight = Value(v.type, v.weight.dims()), sums = dweight;
        dweight = run(set, {"short_conv_weight_grad", {v.dy, v.x, v.weight, v.documents, dweight}})[4];
        std::vector<double> all_y(y.size()), all_dx(y.size());
        for (std::int64_t rank = 0; rank < runs.ranks; ++rank) {
          const Value x = runs.part(v.x, rank, 3), dy = runs.part(v.dy, rank),
                      documents = apart ? runs.part(v.documents, rank) : Value();
          const std::int64_t first = rank * runs.own();
          const auto cleared = [](const Value& like) { return Value(like.dtype(), like.dims()); };
          runs.add(
              run(set, {"short_conv_runs", {x, v.weight, cleared(dy), documents}, attrs, {{2, 1, first}}})[2],
              rank, 0, all_y);
          runs.add(run(set, {"short_conv_runs_input_grad",
                             {dy, x, v.weight, documents, cleared(x)},
                             attrs,
                             {{0, 1, first}}})[4],
                   rank, 3, all_dx);
          sums = run(
              set,
              {"short_conv_runs_weight_grad", {dy, x, v.weight, documents, sums}, attrs, {{0, 1, first}}})[4];
        }
        EXPECT_EQ(all_y, y.numbers());
        expect_close(Value(v.type, dx.dims(), all_dx), dx.numbers(), 1e-14, "dx");
        expect_close(sums, dweight.numbers(), 1e-13, "dweight");
      }
}

// A part of the heads finds its rows of a weight that has all; a sum that begins there has zeros elsewhere.
TEST(ShortConv, PartsOfHeadsFindTheirRows) {
  const Case c{2, 9, 3, 5, 4};
  for (const InstructionSet& set : all_kernels()) {
    const Conv v(c, DType::f64);
    const Value all = run(set, v.forward())[2],
                sums = run(set, {"short_conv_weight_grad",
                                 {v.dy, v.x, v.weight, Value(), Value(v.type, v.weight.dims())}})[4];
    std::vector<double> added(sums.size());
    for (std::int64_t head = 0; head < 3; ++head) {
      const auto part = [&](const Value& x) {
        Value own(v.type, {c.batch, c.seq, 1, c.channels});
        for (std::size_t i = 0; i < own.size(); ++i)
          own.set(i, x[(i / 5 * 3 + static_cast<std::size_t>(head)) * 5 + i % 5]);
        return own;
      };
      Call forward{"short_conv",
                   {part(v.x), v.weight, part(v.x), Value(v.type, {c.batch, 11, 1, c.channels})}};
      forward.starts = {{0, 2, head}};
      EXPECT_EQ(run(set, forward)[2].bytes(), part(all).bytes());
      Call back{"short_conv_weight_grad",
                {part(v.dy), part(v.x), v.weight, Value(), Value(v.type, v.weight.dims())}};
      back.starts = {{0, 2, head}, {1, 2, head}};
      expect_begins(set, back, {4});
      const Value own = run(set, back)[4];
      for (std::size_t i = 0; i < added.size(); ++i) added[i] += own[i];
    }
    EXPECT_EQ(added, sums.numbers());
  }
}

// The last positions of a call need not belong to the text.
TEST(ShortConv, GoesOnFromItsTail) {
  const Case c{2, 23, 2, 9, 4};
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::bf16}) {
      const Conv v(c, type);
      const Value want = run(set, v.forward())[2];
      Value kept = v.tail();
      for (const std::int64_t at : {0, 8, 16, 17, 17, 18}) {
        Value few(type, {c.batch, 8, c.heads, c.channels});
        for (std::int64_t b = 0; b < c.batch; ++b)
          for (std::int64_t i = 0; i < 8 * c.width(); ++i)
            few.set(static_cast<std::size_t>(b * 8 * c.width() + i),
                    at + i / c.width() < c.seq ? v.x[c.at(b, at, 0) + static_cast<std::size_t>(i)] : 0.5);
        const std::vector<Value> got = run(
            set, {"short_conv_at", {few, v.weight, number(static_cast<double>(at)), kept, few, v.tail()}});
        kept = got[3];
        EXPECT_EQ(kept.bytes(), got[5].bytes());
        for (std::int64_t b = 0; b < c.batch; ++b)
          for (std::int64_t i = 0; i < std::min<std::int64_t>(8, c.seq - at) * c.width(); ++i)
            EXPECT_EQ(got[4][static_cast<std::size_t>(b * 8 * c.width() + i)],
                      want[c.at(b, at, 0) + static_cast<std::size_t>(i)])
                << "position " << at + i / c.width();
      }
    }
}

}  // namespace
}  // namespace prun::test::short_conv_test
