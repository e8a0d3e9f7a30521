// Parts of sequences: a row of attention across them has the bits that it has among all, and what reorders
// sequences goes there and back.
#include "prun/sequence_order.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, sequence_test)

namespace prun::test::sequence_test {
namespace {

struct Shared {
  std::int64_t batch = 2, seq, heads = 2, queries = 2, width = 16, ranks = 2;
  bool zigzag = true, documents = false;
};

SequenceOrder order_of(const Shared& c) {
  if (!c.zigzag) return {};
  return {c.seq / (2 * c.ranks), 2 * c.ranks};
}

// Rows of [batch, seq, ...] that lie at places [first, first + count) of the order.
Value rows_at(const Value& whole, const Shared& c, std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> dims = whole.dims();
  dims[1] = count;
  Value part(whole.dtype(), dims);
  const std::size_t row = whole.size() / static_cast<std::size_t>(c.batch * c.seq);
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t at = b * c.seq + order_of(c).position(first + i);
      for (std::size_t e = 0; e < row; ++e)
        part.set(static_cast<std::size_t>(b * count + i) * row + e,
                 whole[static_cast<std::size_t>(at) * row + e]);
    }
  return part;
}

// Of [batch, heads, queries, seq].
std::vector<double> statistics_at(const Value& lse, const Shared& c, std::int64_t first, std::int64_t count) {
  std::vector<double> part;
  for (std::int64_t unit = 0; unit < c.batch * c.heads * c.queries; ++unit)
    for (std::int64_t i = 0; i < count; ++i)
      part.push_back(lse[static_cast<std::size_t>(unit * c.seq + order_of(c).position(first + i))]);
  return part;
}

Value starts_of(const Shared& c) {
  if (!c.documents) return {};
  std::vector<std::int64_t> starts;
  for (std::int64_t b = 0; b < c.batch; ++b)
    for (std::int64_t i = 0, start = 0; i < c.seq; ++i) {
      if (i % (37 + 11 * b) == 3 || i == c.seq / 2) start = i;
      starts.push_back(start);
    }
  return integers(DType::i32, {c.batch, c.seq}, starts);
}

struct Operands {
  Value q, k, v, dy, documents;

  Operands(const Shared& c, DType type)
      : q(random_value(type, {c.batch, c.seq, c.heads, c.queries, c.width}, 1)),
        k(random_value(type, {c.batch, c.seq, c.heads, c.width}, 2)),
        v(random_value(type, {c.batch, c.seq, c.heads, c.width}, 3)),
        dy(random_value(type, q.dims(), 4)),
        documents(starts_of(c)) {}
};

Value cleared(const Value& value) { return Value(value.dtype(), value.dims()); }

void expect_rows_of_the_whole(const InstructionSet& set, const Shared& c, DType type) {
  const Operands all(c, type);
  const DType statistics = OpShape::statistics(type);
  const Value lse(statistics, {c.batch, c.heads, c.queries, c.seq});
  const auto whole = run(
      set, {"attention", {all.q, all.k, all.v, cleared(all.q), lse, all.documents}, {{.i = 1}, {.i = 0}}});
  const auto grads = run(set, {"attention_grad",
                               {all.dy, all.q, all.k, all.v, whole[3], whole[4], cleared(all.q),
                                cleared(all.k), cleared(all.v), all.documents},
                               {{.i = 1}, {.i = 0}}});
  const SequenceOrder order = order_of(c);
  const std::vector<Attr> attrs = {{.i = 1}, {.i = 0}, {.i = order.chunk}, {.i = order.chunks},
                                   {.i = 0}, {.i = 0}};
  const std::int64_t rows = c.seq / c.ranks;
  std::vector<double> dk(all.k.size()), dv(all.v.size());
  for (std::int64_t first = 0; first < c.seq; first += rows) {
    const auto part = [&](const Value& value) { return rows_at(value, c, first, rows); };
    const Value q = part(all.q), documents = c.documents ? part(all.documents) : Value();
    const Value own_lse(statistics, {c.batch, c.heads, c.queries, rows});
    const auto own = run(
        set, {"attention_across", {q, all.k, all.v, cleared(q), own_lse, documents}, attrs, {{0, 1, first}}});
    EXPECT_EQ(own[3].numbers(), part(whole[3]).numbers()) << set.name << " y from " << first;
    EXPECT_EQ(own[4].numbers(), statistics_at(whole[4], c, first, rows)) << set.name << " lse from " << first;
    const auto back = run(set, {"attention_across_grad",
                                {part(all.dy), q, all.k, all.v, own[3], own[4], cleared(q), cleared(all.k),
                                 cleared(all.v), documents},
                                attrs,
                                {{1, 1, first}}});
    EXPECT_EQ(back[6].numbers(), part(grads[6]).numbers()) << set.name << " dq from " << first;
    for (std::size_t i = 0; i < dk.size(); ++i) dk[i] += back[7][i], dv[i] += back[8][i];
  }
  expect_close(grads[7], dk, 4 * tolerance(type), "dk");
  expect_close(grads[8], dv, 4 * tolerance(type), "dv");
}

TEST(AttentionAcross, RowsHaveTheBitsThatTheyHaveAmongAll) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Shared& c : {Shared{.seq = 16}, Shared{.seq = 320, .ranks = 4},
                              Shared{.seq = 600, .heads = 1, .ranks = 3, .documents = true},
                              Shared{.seq = 514, .queries = 1, .zigzag = false, .documents = true}})
        expect_rows_of_the_whole(set, c, type);
}

// A window is what documents would say that begin so far back.
TEST(AttentionAcross, AWindowHidesWhatLiesFurtherBack) {
  const Shared c{.seq = 320, .ranks = 2};
  const SequenceOrder order = order_of(c);
  constexpr std::int64_t window = 50, first = 160;
  for (const InstructionSet& set : all_kernels()) {
    const Operands all(c, DType::f64);
    const Value q = rows_at(all.q, c, first, first);
    std::vector<std::int64_t> starts;
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t i = 0; i < first; ++i)
        starts.push_back(std::max<std::int64_t>(0, order.position(first + i) + 1 - window));
    const Value lse(DType::f64, {c.batch, c.heads, c.queries, first});
    const auto result = [&](std::int64_t window_of, const Value& documents) {
      return run(set,
                 {"attention_across",
                  {q, all.k, all.v, cleared(q), lse, documents},
                  {{.i = 1}, {.i = window_of}, {.i = order.chunk}, {.i = order.chunks}, {.i = 0}, {.i = 0}},
                  {{0, 1, first}}})[3];
    };
    EXPECT_EQ(result(window, Value()).bytes(),
              result(0, integers(DType::i32, {c.batch, first}, starts)).bytes());
  }
}

TEST(Sequence, GoesThereAndBack) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::bf16, DType::i32}) {
      const std::vector<Attr> attrs = {{.i = 3}, {.i = 4}};
      Value x(type, {2, 12, 5});
      for (std::size_t i = 0; i < x.size(); ++i) x.set(i, static_cast<double>(i));
      const Value there = run(set, {"as_context", {x, cleared(x)}, attrs})[1];
      // Chunks lie 0 3 1 2, of three positions each.
      constexpr std::size_t places[] = {0, 2, 3, 1};
      for (std::size_t i = 0; i < x.size(); ++i) {
        const std::size_t row = i / 5 % 12, from = places[row / 3] * 3 + row % 3;
        EXPECT_EQ(there[i], x[(i / 60 * 12 + from) * 5 + i % 5]) << i;
      }
      EXPECT_EQ(run(set, {"as_seq", {there, cleared(x)}, attrs})[1].bytes(), x.bytes());
    }
}

TEST(Sequence, SaysWhichPositionIsWhere) {
  for (const InstructionSet& set : all_kernels()) {
    const Value tokens(DType::i32, {2, 4});
    const auto positions = [&](std::int64_t first) {
      return run(set,
                 {"positions", {tokens, Value(DType::i32, {4})}, {{.i = 2}, {.i = 4}}, {{1, 0, first}}})[1]
          .numbers();
    };
    EXPECT_EQ(positions(0), (std::vector<double>{0, 1, 6, 7}));
    EXPECT_EQ(positions(4), (std::vector<double>{2, 3, 4, 5}));
  }
}

// Ops that go by position do what they do in order.
TEST(Sequence, OpsAreToldWhichPositionIsWhere) {
  constexpr std::int64_t seq = 8;
  const Shared c{.batch = 2, .seq = seq, .ranks = 2};
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < seq; ++i) numbers.push_back(order_of(c).position(i));
  const Value positions = integers(DType::i32, {seq}, numbers);
  const auto part = [&](const Value& value) { return rows_at(value, c, 0, seq); };
  for (const InstructionSet& set : all_kernels()) {
    const Value x = random_value(DType::f32, {2, seq, 6}, 1), table = random_value(DType::f32, {seq, 6}, 2);
    EXPECT_EQ(run(set, {"add_position", {part(x), table, cleared(x), positions}})[2].numbers(),
              part(run(set, {"add_position", {x, table, cleared(x)}})[2]).numbers());
    EXPECT_EQ(run(set, {"position_weight_grad", {part(x), positions, table}})[2].numbers(),
              run(set, {"position_weight_grad", {x, Value(), table}})[2].numbers());
    const Value samples(DType::i64, {2}), packed = random_value(DType::f32, {2, seq, 2, 4, 6}, 3);
    const std::vector<Attr> p = {{.f = 0.5}, {.i = 1}};
    EXPECT_EQ(run(set, {"dropout", {part(x), samples, number(7), cleared(x), positions}, p})[3].numbers(),
              part(run(set, {"dropout", {x, samples, number(7), cleared(x)}, p})[3]).numbers());
    const std::vector<Attr> turn = {{.f = 100}, {.f = 1}, {.f = 1}, {.f = 4}, {.f = 8192}, {.i = 0},
                                    {.f = 1},   {.f = 1}, {.i = 0}, {.i = 0}, {.f = 0},    {.f = 1}};
    const Value q(DType::f32, {2, seq, 2, 2, 6}), k(DType::f32, {2, seq, 2, 6});
    EXPECT_EQ(run(set, {"rope", {part(packed), q, k, k, positions}, turn})[1].numbers(),
              part(run(set, {"rope", {packed, q, k, k}, turn})[1]).numbers());
    Value tokens(DType::i32, {2, seq});
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens.set(i, i % 3 == 0 ? 7 : 1);
    EXPECT_EQ(
        run(set, {"document_starts", {part(tokens), cleared(tokens), positions}, {{.i = 7}}})[1].numbers(),
        part(run(set, {"document_starts", {tokens, cleared(tokens)}, {{.i = 7}}})[1]).numbers());
  }
}

}  // namespace
}  // namespace prun::test::sequence_test
