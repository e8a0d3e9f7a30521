// Windows across parts of sequences: from the positions ahead of its chunks alone, a rank's rows have the
// bits that they have among all, and gradients of these positions go back to the ranks that have them.
#include "prun/sequence_order.hpp"
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, halo_test)

namespace prun::test::halo_test {
namespace {

struct Shared {
  std::int64_t seq, window, ranks = 2;
  bool zigzag = false, documents = false;
  std::int64_t batch = 2, heads = 2, queries = 2, width = 16;

  std::int64_t parts() const { return zigzag ? 2 * ranks : ranks; }
  std::int64_t rows() const { return seq / parts(); }  // of a chunk
  std::int64_t own() const { return seq / ranks; }     // of a rank
  std::int64_t reach() const { return std::max<std::int64_t>(window - 1, 1); }
  SequenceOrder order() const { return zigzag ? SequenceOrder{rows(), parts()} : SequenceOrder{}; }
  std::vector<Attr> halo() const {
    return {{.i = rows()}, {.i = reach()}, {.i = parts()}, {.i = zigzag ? parts() : 0}};
  }
  std::vector<Attr> tails_order() const { return {{.i = zigzag ? reach() : 0}, {.i = zigzag ? parts() : 0}}; }
  std::vector<Attr> across() const {
    return {{.i = 1},       {.i = window}, {.i = order().chunk}, {.i = order().chunks},
            {.i = reach()}, {.i = parts()}};
  }
};

Value shaped(const Value& like, std::int64_t rows) {
  std::vector<std::int64_t> dims = like.dims();
  dims[1] = rows;
  return Value(like.dtype(), dims);
}

// Copies rows [from, from + count) of each sample to those from `to` on.
void copy_rows(const Value& x, std::int64_t from, Value& y, std::int64_t to, std::int64_t count) {
  const std::int64_t samples = x.dims()[0], all = x.dims()[1], others = y.dims()[1];
  const auto width = static_cast<std::int64_t>(x.size()) / (samples * all);
  for (std::int64_t b = 0; b < samples; ++b)
    for (std::int64_t i = 0; i < count * width; ++i)
      y.set(static_cast<std::size_t>((b * others + to) * width + i),
            x[static_cast<std::size_t>((b * all + from) * width + i)]);
}

// Returns a rank's rows of [batch, seq, ...].
Value part_of(const Value& whole, const Shared& c, std::int64_t rank) {
  Value part = shaped(whole, c.own());
  for (std::int64_t i = 0; i < c.own(); ++i)
    copy_rows(whole, c.order().position(rank * c.own() + i), part, i, 1);
  return part;
}

// Returns a rank's rows of [batch, heads, queries, seq].
std::vector<double> statistics_of(const Value& lse, const Shared& c, std::int64_t rank) {
  std::vector<double> part;
  for (std::int64_t unit = 0; unit < c.batch * c.heads * c.queries; ++unit)
    for (std::int64_t i = 0; i < c.own(); ++i)
      part.push_back(lse[static_cast<std::size_t>(unit * c.seq + c.order().position(rank * c.own() + i))]);
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

// What ranks do together: exchanges are copies here.
class Ranks {
 public:
  Ranks(const InstructionSet& set, const Shared& c) : set_(set), c_(c) {}

  // Returns each rank's rows behind those ahead of its chunks.
  std::vector<Value> with_halo(const Value& whole) const {
    Value gathered = shaped(whole, c_.parts() * c_.reach());
    std::vector<Value> parts;
    for (std::int64_t rank = 0; rank < c_.ranks; ++rank) {
      parts.push_back(part_of(whole, c_, rank));
      const std::int64_t rows = c_.own() / c_.rows() * c_.reach();
      const Value tails = run(set_, {"halo_tails", {parts.back(), shaped(whole, rows)}, tails_attrs()})[1];
      copy_rows(tails, 0, gathered, rank * rows, rows);
    }
    const Value halo = run(set_, {"as_context", {gathered, cleared(gathered)}, c_.tails_order()})[1];
    for (std::int64_t rank = 0; rank < c_.ranks; ++rank)
      parts[index(rank)] = run(set_, {"join_halo",
                                      {parts[index(rank)], halo, shaped(whole, rows_with_halo())},
                                      c_.halo(),
                                      {{0, 1, rank * c_.own()}}})[2];
    return parts;
  }

  // Takes gradients of that back, and adds them up where the rows are.
  std::vector<Value> given_back(const std::vector<Value>& gradients) const {
    std::vector<Value> parts;
    Value sum = shaped(gradients[0], c_.parts() * c_.reach());
    for (std::int64_t rank = 0; rank < c_.ranks; ++rank) {
      const auto apart = run(set_, {"part_halo",
                                    {gradients[index(rank)], shaped(sum, c_.own()), cleared(sum)},
                                    c_.halo(),
                                    {{1, 1, rank * c_.own()}}});
      parts.push_back(apart[1]);
      for (std::size_t i = 0; i < sum.size(); ++i) sum.set(i, sum[i] + apart[2][i]);
    }
    const Value tails = run(set_, {"as_seq", {sum, cleared(sum)}, c_.tails_order()})[1];
    for (std::int64_t rank = 0; rank < c_.ranks; ++rank) {
      Value own = shaped(sum, c_.own() / c_.rows() * c_.reach());
      copy_rows(tails, rank * own.dims()[1], own, 0, own.dims()[1]);
      Value& part = parts[index(rank)];
      part = run(set_, {"add_tails", {part, own, cleared(part)}, tails_attrs()})[2];
    }
    return parts;
  }

  static Value cleared(const Value& value) { return Value(value.dtype(), value.dims()); }

 private:
  static std::size_t index(std::int64_t rank) { return static_cast<std::size_t>(rank); }
  std::vector<Attr> tails_attrs() const { return {{.i = c_.rows()}, {.i = c_.reach()}}; }
  std::int64_t rows_with_halo() const { return c_.own() / c_.rows() * (c_.rows() + c_.reach()); }

  const InstructionSet& set_;
  const Shared& c_;
};

void expect_rows_of_the_whole(const InstructionSet& set, const Shared& c, DType type) {
  SCOPED_TRACE(detail::concat(set.name, ", ", c.seq, " over ", c.ranks, c.zigzag ? " zigzag" : "",
                              ", window ", c.window, c.documents ? ", documents" : ""));
  const std::vector<std::int64_t> heads = {c.batch, c.seq, c.heads, c.width};
  const Value q = random_value(type, {c.batch, c.seq, c.heads, c.queries, c.width}, 1),
              k = random_value(type, heads, 2), v = random_value(type, heads, 3),
              dy = random_value(type, q.dims(), 4), documents = starts_of(c);
  const auto cleared = Ranks::cleared;
  const Value lse(OpShape::statistics(type), {c.batch, c.heads, c.queries, c.seq});
  const std::vector<Attr> mask = {{.i = 1}, {.i = c.window}};
  const auto whole = run(set, {"attention", {q, k, v, cleared(q), lse, documents}, mask});
  const auto grads =
      run(set, {"attention_grad",
                {dy, q, k, v, whole[3], whole[4], cleared(q), cleared(k), cleared(v), documents},
                mask});
  const Ranks ranks(set, c);
  const std::vector<Value> near_k = ranks.with_halo(k), near_v = ranks.with_halo(v);
  std::vector<Value> dk, dv;
  for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
    const std::int64_t first = rank * c.own();
    const auto at = static_cast<std::size_t>(rank);
    const auto part = [&](const Value& value) { return part_of(value, c, rank); };
    const Value own_lse(lse.dtype(), {c.batch, c.heads, c.queries, c.own()}),
        starts = c.documents ? part(documents) : Value();
    const auto own = run(set, {"attention_across",
                               {part(q), near_k[at], near_v[at], cleared(part(q)), own_lse, starts},
                               c.across(),
                               {{0, 1, first}}});
    EXPECT_EQ(own[3].numbers(), part(whole[3]).numbers()) << "y of rank " << rank;
    EXPECT_EQ(own[4].numbers(), statistics_of(whole[4], c, rank)) << "lse of rank " << rank;
    const auto back = run(set, {"attention_across_grad",
                                {part(dy), part(q), near_k[at], near_v[at], own[3], own[4], cleared(part(q)),
                                 cleared(near_k[at]), cleared(near_v[at]), starts},
                                c.across(),
                                {{1, 1, first}}});
    expect_close(back[6], part(grads[6]).numbers(), 4 * tolerance(type), "dq");
    dk.push_back(back[7]), dv.push_back(back[8]);
  }
  dk = ranks.given_back(dk), dv = ranks.given_back(dv);
  for (std::int64_t rank = 0; rank < c.ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    expect_close(dk[at], part_of(grads[7], c, rank).numbers(), 4 * tolerance(type), "dk");
    expect_close(dv[at], part_of(grads[8], c, rank).numbers(), 4 * tolerance(type), "dv");
  }
}

// Chunks that are no whole blocks of keys or queries, windows of one position and of nearly a chunk.
TEST(Halo, RowsHaveTheBitsThatTheyHaveAmongAll) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (const Shared& c :
           {Shared{.seq = 16, .window = 3}, Shared{.seq = 16, .window = 1, .zigzag = true},
            Shared{.seq = 320, .window = 50, .ranks = 4},
            Shared{.seq = 600, .window = 200, .ranks = 3, .documents = true, .heads = 1},
            Shared{.seq = 1200, .window = 290, .zigzag = true, .documents = true, .heads = 1, .queries = 1},
            Shared{.seq = 330, .window = 20, .ranks = 3, .zigzag = true, .documents = true}})
        expect_rows_of_the_whole(set, c, type);
}

TEST(Halo, TailsWithoutTheRestLeaveZeros) {
  const Value tails = random_value(DType::f32, {1, 2, 3}, 1);
  for (const InstructionSet& set : all_kernels()) {
    const Value y =
        run(set, {"add_tails", {Value(), tails, Value(DType::f32, {1, 6, 3})}, {{.i = 3}, {.i = 1}}})[2];
    for (std::size_t i = 0; i < y.size(); ++i)
      EXPECT_EQ(y[i], i / 3 % 3 == 2 ? tails[i / 9 * 3 + i % 3] : 0) << i;
  }
}

// Another axis may not cut a chunk.
TEST(Halo, PartsOfChunksHaveNoKernel) {
  for (const InstructionSet& set : all_kernels()) {
    Call call{
        "halo_tails", {Value(DType::f32, {1, 6, 3}), Value(DType::f32, {1, 2, 3})}, {{.i = 4}, {.i = 1}}};
    EXPECT_EQ(select_kernel(set, call), nullptr);
  }
}

}  // namespace
}  // namespace prun::test::halo_test
