// lm_head with a bias against one without, whose rows of x end with 1 and whose weight's end with the bias;
// its split form, joined as the exchanges between ranks would, for every type and instruction set; and the
// logits alone. token_types as well.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, lm_head_bias_test)

namespace prun::test::lm_head_bias_test {
namespace {

constexpr std::int64_t batch = 2, seq = 9, width = 5, vocab = 23;
constexpr double scale = 0.75, before = 2.5;

DType statistics(DType type) { return OpShape::statistics(type); }

// Each row with one number more behind it.
Value widened(const Value& rows, const std::vector<double>& behind) {
  std::vector<std::int64_t> dims = rows.dims();
  const auto inner = static_cast<std::size_t>(dims.back());
  ++dims.back();
  Value wide(rows.dtype(), dims);
  for (std::size_t row = 0; row < behind.size(); ++row) {
    for (std::size_t i = 0; i < inner; ++i) wide.set(row * (inner + 1) + i, rows[row * inner + i]);
    wide.set(row * (inner + 1) + inner, behind[row]);
  }
  return wide;
}

Value part_of(const Value& table, std::int64_t first, std::int64_t last) {
  std::vector<std::int64_t> dims = table.dims();
  const std::size_t inner = table.size() / static_cast<std::size_t>(dims[0]);
  dims[0] = last - first;
  Value part(table.dtype(), dims);
  for (std::size_t i = 0; i < part.size(); ++i)
    part.set(i, table[static_cast<std::size_t>(first) * inner + i]);
  return part;
}

struct Problem {
  DType type;
  Value x, weight, bias, targets{DType::i32, {batch, seq}}, dweight, dbias;

  explicit Problem(DType t)
      : type(t),
        x(Value::random(t, {batch, seq, width}, 1)),
        weight(Value::random(t, {vocab, width}, 2)),
        bias(Value::random(t, {vocab}, 3)),
        dweight(Value::random(statistics(t), {vocab, width}, 4)),
        dbias(Value::random(statistics(t), {vocab}, 5)) {
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets.set(i, i % 4 == 1 ? -1.0 : static_cast<double>(i * 7 % static_cast<std::size_t>(vocab)));
  }
  Value results() const { return {statistics(type), {batch, seq}}; }
};

struct Result {
  double loss = 0;
  std::vector<double> dx, dweight, dbias;
};

// The last number of each row, or all others.
std::vector<double> columns(const Value& wide, bool last) {
  std::vector<double> out;
  for (std::size_t i = 0; i < wide.size(); ++i)
    if ((i % (width + 1) == width) == last) out.push_back(wide[i]);
  return out;
}

Result by_lm_head(const InstructionSet& set, const Problem& p) {
  const Value x = widened(p.x, std::vector<double>(p.targets.size(), 1)),
              weight = widened(p.weight, p.bias.numbers()), dweight = widened(p.dweight, p.dbias.numbers());
  const std::vector<Value> after = run(
      set,
      {"lm_head", {x, weight, p.targets, number(scale), number(before), dweight, Value(p.type, x.dims())}});
  return {after[4][0], columns(after[6], false), columns(after[5], false), columns(after[5], true)};
}

Result whole(const InstructionSet& set, const Problem& p) {
  const Call call = {"lm_head",
                     {p.x, p.weight, p.targets, number(scale), number(before), p.dweight,
                      Value(p.type, p.x.dims()), p.bias, p.dbias}};
  const std::vector<Value> after = run(set, call);
  expect_begins(set, call, {5, 8});
  return {after[4][0], after[6].numbers(), after[5].numbers(), after[8].numbers()};
}

Result in_two(const InstructionSet& set, const Problem& p) {
  constexpr std::int64_t cuts[] = {0, 10, vocab};
  const Attr words{.i = vocab};
  std::vector<Value> max, sum, hit;
  for (int part = 0; part < 2; ++part) {
    const std::vector<Value> after =
        run(set, {"lm_head_scan",
                  {p.x, part_of(p.weight, cuts[part], cuts[part + 1]), p.targets, p.results(), p.results(),
                   p.results(), part_of(p.bias, cuts[part], cuts[part + 1])},
                  {words},
                  {{1, 0, cuts[part]}}});
    max.push_back(after[3]), sum.push_back(after[4]), hit.push_back(after[5]);
  }
  Value gmax = max[0], scaled = p.results(), hits = p.results();
  for (std::size_t i = 0; i < gmax.size(); ++i) gmax.set(i, std::max(max[0][i], max[1][i]));
  for (int part = 0; part < 2; ++part) {
    const Value here = run(set, {"lm_head_rescale", {max[part], gmax, sum[part], p.results()}})[3];
    for (std::size_t i = 0; i < gmax.size(); ++i) scaled.set(i, scaled[i] + here[i]);
    for (std::size_t i = 0; i < gmax.size(); ++i) hits.set(i, hits[i] + hit[part][i]);
  }
  const std::vector<Value> joined =
      run(set, {"lm_head_loss", {gmax, scaled, hits, p.targets, number(before), p.results()}});
  Result result{joined[4][0], std::vector<double>(p.x.size()), {}, {}};
  for (int part = 0; part < 2; ++part) {
    const auto cut = [&](const Value& table) { return part_of(table, cuts[part], cuts[part + 1]); };
    const std::vector<Value> after =
        run(set, {"lm_head_grad",
                  {p.x, cut(p.weight), p.targets, joined[5], number(scale), cut(p.dweight),
                   Value(p.type, p.x.dims()), cut(p.bias), cut(p.dbias)},
                  {},
                  {{1, 0, cuts[part]}}});
    for (std::size_t i = 0; i < result.dx.size(); ++i) result.dx[i] += after[6][i];
    for (std::size_t i = 0; i < after[5].size(); ++i) result.dweight.push_back(after[5][i]);
    for (std::size_t i = 0; i < after[8].size(); ++i) result.dbias.push_back(after[8][i]);
  }
  return result;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * (1 + std::abs(want[i]))) << what << "[" << i << "]";
}

void expect_alike(const Result& got, const Result& want, DType type) {
  const double exact = type == DType::f64 ? 1e-12 : 1e-5, rounded = size_of(type) == 2 ? 1e-2 : exact;
  expect_near({got.loss}, {want.loss}, exact, "loss");
  expect_near(got.dx, want.dx, rounded, "dx");
  expect_near(got.dweight, want.dweight, exact, "dweight");
  expect_near(got.dbias, want.dbias, exact, "dbias");
}

TEST(LmHeadBias, IsAHeadWithOneColumnMore) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const InstructionSet& set : all_kernels()) {
      SCOPED_TRACE(std::string(set.name) + " " + name_of(type));
      const Problem p(type);
      expect_alike(whole(set, p), by_lm_head(set, p), type);
      expect_alike(in_two(set, p), by_lm_head(set, p), type);
    }
}

// What is added to the loss is added beside the bias.
TEST(LmHeadBias, HasZLossAndSmoothing) {
  for (const InstructionSet& set : all_kernels()) {
    const Problem p(DType::f64);
    const std::vector<Attr> added = {{.f = 0.03}, {.f = 0.2}};
    const Value x = widened(p.x, std::vector<double>(p.targets.size(), 1)),
                weight = widened(p.weight, p.bias.numbers()), dweight = widened(p.dweight, p.dbias.numbers());
    const std::vector<Value> want =
        run(set, {"lm_head_regularized",
                  {x, weight, p.targets, number(scale), number(before), dweight, Value(p.type, x.dims())},
                  added});
    const std::vector<Value> got = run(set, {"lm_head_regularized",
                                             {p.x, p.weight, p.targets, number(scale), number(before),
                                              p.dweight, Value(p.type, p.x.dims()), p.bias, p.dbias},
                                             added});
    expect_near({got[4][0]}, {want[4][0]}, 1e-12, "loss");
    expect_near(got[8].numbers(), columns(want[5], true), 1e-12, "dbias");
    expect_near(got[6].numbers(), columns(want[6], false), 1e-12, "dx");
  }
}

TEST(LmHeadBias, LogitsHaveTheBias) {
  for (const InstructionSet& set : all_kernels()) {
    const Problem p(DType::f64);
    const Value none(p.type, {batch, vocab});
    const Value got = run(set, {"lm_head_logits", {p.x, p.weight, p.targets, none, p.bias}})[3],
                without = run(set, {"lm_head_logits", {p.x, p.weight, p.targets, none}})[3];
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], without[i] + p.bias[i % static_cast<std::size_t>(vocab)], 1e-12);
  }
}

// Words of a row, separated by 7; where places are in another order, the same of each position.
TEST(TokenTypes, CountSeparatorsInFront) {
  const Value tokens = integers(DType::i32, {2, 6}, {1, 7, 2, 7, 7, 3, 7, 1, 1, 1, 7, 1}),
              kinds(DType::i32, {2, 6});
  for (const InstructionSet& set : all_kernels()) {
    EXPECT_EQ(run(set, {"token_types", {tokens, kinds, Value()}, {{.i = 7}, {.i = 3}}})[1].numbers(),
              (std::vector<double>{0, 0, 1, 1, 2, 2, 0, 1, 1, 1, 1, 2}));
    EXPECT_EQ(run(set, {"token_types", {tokens, kinds, Value()}, {{.i = -1}, {.i = 2}}})[1].numbers(),
              std::vector<double>(12));
    const Value positions = integers(DType::i32, {6}, {5, 4, 3, 2, 1, 0});
    EXPECT_EQ(run(set, {"token_types", {tokens, kinds, positions}, {{.i = 7}, {.i = 2}}})[1].numbers(),
              (std::vector<double>{1, 1, 1, 1, 0, 0, 1, 1, 1, 1, 0, 0}));
  }
}

}  // namespace
}  // namespace prun::test::lm_head_bias_test
