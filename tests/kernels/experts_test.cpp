// experts and its gradients against plain sums in double, for every type and instruction set.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(experts_kernels, experts_test)

namespace prun::test::experts_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::OpShape;
using prun::test::Call;
using prun::test::expect_batch_free;
using prun::test::expect_begins;
using prun::test::expect_close;
using prun::test::InstructionSet;
using prun::test::integers;
using prun::test::random_value;
using prun::test::run;
using prun::test::run_on;
using prun::test::Value;

using Numbers = std::vector<double>;

struct Sizes {
  std::int64_t batch, seq, hidden, choices, experts, ffn;
  std::size_t rows() const { return static_cast<std::size_t>(batch * seq); }
};

double silu(double x) { return x / (1 + std::exp(-x)); }
double silu_slope(double x) {
  const double s = 1 / (1 + std::exp(-x));
  return s * (1 + x * (1 - s));
}

// Operands, and what should come of them: of experts [first, first + own) alone.
struct Problem {
  Sizes size;
  DType type;
  std::int64_t first, own;
  Value x, index, weight, up, down, dy;
  Numbers y, dx, dweight, dup, ddown;

  Problem(const Sizes& s, DType t, const std::vector<std::int64_t>& choices, std::int64_t from,
          std::int64_t count)
      : size(s),
        type(t),
        first(from),
        own(count),
        x(random_value(t, {s.batch, s.seq, s.hidden}, 1)),
        index(integers(DType::i32, {s.batch, s.seq, s.choices}, choices)),
        weight(random_value(OpShape::statistics(t), {s.batch, s.seq, s.choices}, 2)),
        up(random_value(t, {own, 2, s.ffn, s.hidden}, 3, 0.5)),
        down(random_value(t, {own, s.hidden, s.ffn}, 4, 0.5)),
        dy(random_value(t, {s.batch, s.seq, s.hidden}, 5)),
        y(x.size()),
        dx(x.size()),
        dweight(weight.size()),
        dup(up.size()),
        ddown(down.size()) {
    for (std::size_t row = 0; row < s.rows(); ++row)
      for (std::size_t c = 0; c < static_cast<std::size_t>(s.choices); ++c)
        add(row, row * static_cast<std::size_t>(s.choices) + c);
  }

  // Gradients read what forward has kept, or nothing is kept.
  Call call(const std::string& op, std::vector<Value> results, const Value& kept = {}) const {
    Call made{op, {x, index, weight, up, down}, {Attr{.i = size.experts}}, {{3, 0, first}}};
    made.operands.push_back(op == "experts" ? results[0] : dy);
    made.operands.push_back(kept);
    if (op != "experts") made.operands.insert(made.operands.end(), results.begin(), results.end());
    return made;
  }
  Value room_to_keep() const { return Value(type, {size.batch, size.seq, 2 * size.choices, size.ffn}); }
  Value like(const Value& value) const { return Value(value.dtype(), value.dims()); }
  Value sums(const Value& value) const { return Value(OpShape::statistics(type), value.dims()); }

 private:
  void add(std::size_t row, std::size_t choice) {
    const std::int64_t expert = static_cast<std::int64_t>(index[choice]) - first;
    if (expert < 0 || expert >= own) return;
    const auto h = static_cast<std::size_t>(size.hidden), f = static_cast<std::size_t>(size.ffn),
               e = static_cast<std::size_t>(expert);
    const double w = weight[choice];
    for (std::size_t i = 0; i < f; ++i) {
      const std::size_t gate = (e * 2 * f + i) * h, value = (e * 2 * f + f + i) * h;
      double g = 0, u = 0, back = 0;
      for (std::size_t j = 0; j < h; ++j) {
        g += up[gate + j] * x[row * h + j];
        u += up[value + j] * x[row * h + j];
        back += down[(e * h + j) * f + i] * dy[row * h + j];
      }
      const double act = silu(g) * u, dg = w * back * u * silu_slope(g), du = w * back * silu(g);
      dweight[choice] += act * back;
      for (std::size_t j = 0; j < h; ++j) {
        y[row * h + j] += w * down[(e * h + j) * f + i] * act;
        ddown[(e * h + j) * f + i] += w * act * dy[row * h + j];
        dup[gate + j] += dg * x[row * h + j];
        dup[value + j] += du * x[row * h + j];
        dx[row * h + j] += dg * up[gate + j] + du * up[value + j];
      }
    }
  }
};

// Each position's choices differ; expert 1 has none.
std::vector<std::int64_t> spread(const Sizes& s) {
  std::vector<std::int64_t> choices;
  for (std::int64_t row = 0; row < s.batch * s.seq; ++row)
    for (std::int64_t c = 0; c < s.choices; ++c) {
      const std::int64_t e = (row * 3 + c * 2) % (s.experts - 1);
      choices.push_back(e == 0 ? 0 : e + 1);
    }
  return choices;
}

double tolerance(DType type) { return type == DType::f64 ? 1e-12 : type == DType::f32 ? 2e-5 : 4e-2; }

template <class Check>
void for_all(const Check& check) {
  const Sizes sizes = {2, 37, 21, 2, 5, 19};
  const std::vector<std::int64_t> same(static_cast<std::size_t>(2 * 37 * 2), 2);
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const InstructionSet& set : all_kernels()) {
      check(set, Problem(sizes, type, spread(sizes), 0, 5));
      check(set, Problem(sizes, type, spread(sizes), 2, 2));
      check(set, Problem(sizes, type, same, 0, 5));
      check(set, Problem({3, 50, 16, 1, 4, 8}, type, spread({3, 50, 16, 1, 4, 8}), 1, 3));
    }
}

TEST(Experts, ForwardIsTheSumOfThoseChosen) {
  for_all([](const InstructionSet& set, const Problem& p) {
    const Call call = p.call("experts", {p.like(p.x)});
    expect_close(run(set, call)[5], p.y, tolerance(p.type), set.name);
    expect_batch_free(set, call, {0, 1, 2, 5});
  });
}

TEST(Experts, InputGradientsAreThoseOfTheSum) {
  for_all([](const InstructionSet& set, const Problem& p) {
    const Call call = p.call("experts_grad", {p.like(p.x), p.like(p.weight)});
    const std::vector<Value> done = run(set, call);
    expect_close(done[7], p.dx, tolerance(p.type), std::string(set.name) + " dx");
    expect_close(done[8], p.dweight, tolerance(p.type), std::string(set.name) + " dweight");
    expect_batch_free(set, call, {0, 1, 2, 5, 7, 8});
  });
}

// An expert without rows begins its sums with zeros.
TEST(Experts, WeightGradientsAreAddedUpOrBegun) {
  for_all([](const InstructionSet& set, const Problem& p) {
    const Call call = p.call("experts_weight_grad", {p.sums(p.up), p.sums(p.down)});
    const std::vector<Value> done = run(set, call);
    expect_close(done[7], p.dup, 4 * tolerance(p.type), std::string(set.name) + " dup");
    expect_close(done[8], p.ddown, 4 * tolerance(p.type), std::string(set.name) + " ddown");
    expect_begins(set, call, {7, 8});
  });
}

// What computes both halves computes what they do.
TEST(Experts, BothHalvesTogetherGiveTheBitsOfEach) {
  for_all([](const InstructionSet& set, const Problem& p) {
    const std::vector<Value> inputs = run(set, p.call("experts_grad", {p.like(p.x), p.like(p.weight)})),
                             weights =
                                 run(set, p.call("experts_weight_grad", {p.sums(p.up), p.sums(p.down)}));
    const Call both = p.call("experts_grads", {p.like(p.x), p.like(p.weight), p.sums(p.up), p.sums(p.down)});
    const std::vector<Value> done = run(set, both);
    for (const std::size_t i : {7u, 8u}) {
      EXPECT_EQ(done[i].bytes(), inputs[i].bytes()) << set.name << " operand " << i;
      EXPECT_EQ(done[i + 2].bytes(), weights[i].bytes()) << set.name << " operand " << i + 2;
    }
    expect_begins(set, both, {9, 10});
  });
}

// What backward need not compute again is what it would have computed.
TEST(Experts, GradientsOfWhatWasKeptHaveTheBitsOfThoseComputedAgain) {
  for_all([](const InstructionSet& set, const Problem& p) {
    const std::vector<Value> forward = run(set, p.call("experts", {p.like(p.x)}, p.room_to_keep()));
    EXPECT_EQ(forward[5].bytes(), run(set, p.call("experts", {p.like(p.x)}))[5].bytes()) << set.name;
    const std::vector<Value> results = {p.like(p.x), p.like(p.weight), p.sums(p.up), p.sums(p.down)};
    const std::vector<Value> read = run(set, p.call("experts_grads", results, forward[6])),
                             again = run(set, p.call("experts_grads", results));
    for (std::size_t i = 7; i < again.size(); ++i)
      EXPECT_EQ(read[i].bytes(), again[i].bytes()) << set.name << " operand " << i;
  });
}

// More positions than a piece has, so that sums go on from piece to piece.
TEST(Experts, PiecesAddUp) {
  const Sizes sizes = {1, 4000, 64, 4, 5, 64};
  const Problem p(sizes, DType::f64, spread(sizes), 0, 5);
  const InstructionSet set = all_kernels().back();
  const Call call = p.call("experts_grads", {p.like(p.x), p.like(p.weight), p.sums(p.up), p.sums(p.down)});
  const std::vector<Value> done = run_on(set, call, 2);
  expect_close(done[7], p.dx, 1e-11, "dx");
  expect_close(done[9], p.dup, 1e-11, "dup");
  expect_close(done[10], p.ddown, 1e-11, "ddown");
  expect_begins(set, call, {9, 10});
  const Value kept = run_on(set, p.call("experts", {p.like(p.x)}, p.room_to_keep()), 2)[6];
  EXPECT_EQ(run_on(set, p.call("experts_grads", {call.operands.begin() + 7, call.operands.end()}, kept), 2)[9]
                .bytes(),
            done[9].bytes());
}

}  // namespace
}  // namespace prun::test::experts_test
