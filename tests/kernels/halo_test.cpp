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
  // Of the chunk `distance` before another one, that one's keys begin with so many positions.
  std::int64_t reach(std::int64_t distance) const {
    return std::min(rows(), reach() - (distance - 1) * rows());
  }
  std::int64_t far() const { return (reach() + rows() - 1) / rows(); }  // the longest distance
  std::vector<Attr> halo(std::int64_t with_rows, std::int64_t distance) const {
    return {{.i = with_rows},
            {.i = reach(distance)},
            {.i = distance},
            {.i = parts()},
            {.i = zigzag ? parts() : 0}};
  }
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
    std::vector<Value> own, parts;
    for (std::int64_t rank = 0; rank < c_.ranks; ++rank) own.push_back(part_of(whole, c_, rank));
    parts = own;
    for (std::int64_t distance = 1; distance <= c_.far(); ++distance) {
      const std::int64_t rows = c_.rows() * distance, more = c_.reach(distance);
      std::vector<Value> tails;
      for (const Value& part : own)
        tails.push_back(run(set_, {"halo_tails", {part, of_chunks(whole, more)}, tails_attrs(distance)})[1]);
      const std::vector<Value> halos = shifted(tails, distance);
      for (std::size_t i = 0; i < parts.size(); ++i)
        parts[i] = run(set_, {"join_halo",
                              {parts[i], halos[i], of_chunks(whole, rows + more)},
                              c_.halo(rows, distance),
                              {{0, 1, start(i, rows)}}})[2];
    }
    return parts;
  }

  // Takes gradients of that back, and adds them up where the rows are.
  std::vector<Value> given_back(std::vector<Value> parts) const {
    std::vector<std::vector<Value>> halos(static_cast<std::size_t>(c_.far()) + 1);  // by distance
    for (std::int64_t distance = c_.far(); distance > 0; --distance) {
      const std::int64_t rows = c_.rows() * distance, more = c_.reach(distance);
      for (Value& part : parts) {
        const auto apart = run(
            set_,
            {"part_halo", {part, of_chunks(part, rows), of_chunks(part, more)}, {{.i = rows}, {.i = more}}});
        part = apart[1];
        halos[static_cast<std::size_t>(distance)].push_back(apart[2]);
      }
    }
    for (std::int64_t distance = c_.far(); distance > 0; --distance) {
      const std::vector<Value>& here = halos[static_cast<std::size_t>(distance)];
      const std::vector<Value> tails = shifted(here, -distance);
      for (std::size_t i = 0; i < parts.size(); ++i)
        parts[i] = run(set_, {"add_tails",
                              {parts[i], tails[i], here[i], cleared(parts[i])},
                              c_.halo(c_.rows(), distance),
                              {{0, 1, start(i, c_.rows())}}})[3];
    }
    return parts;
  }

  static Value cleared(const Value& value) { return Value(value.dtype(), value.dims()); }

 private:
  std::int64_t chunks() const { return c_.own() / c_.rows(); }  // of a rank
  std::int64_t start(std::size_t rank, std::int64_t rows) const {
    return static_cast<std::int64_t>(rank) * chunks() * rows;
  }
  std::vector<Attr> tails_attrs(std::int64_t distance) const {
    return {{.i = c_.rows()}, {.i = c_.reach(distance)}};
  }
  // Returns room for so many rows of each chunk of a rank.
  Value of_chunks(const Value& like, std::int64_t rows) const { return shaped(like, chunks() * rows); }

  // Does what ranks exchange: what no other rank sends is not written.
  std::vector<Value> shifted(const std::vector<Value>& tails, std::int64_t distance) const {
    const SequenceOrder order{c_.zigzag ? 1 : 0, c_.parts()};
    const std::int64_t rows = tails[0].dims()[1] / chunks();
    std::vector<Value> parts;
    for (const Value& part : tails) {
      parts.push_back(cleared(part));
      for (std::size_t i = 0; i < part.size(); ++i) parts.back().set(i, 77);
    }
    for (std::int64_t from = 0; from < c_.parts(); ++from)
      for (std::int64_t to = 0; to < c_.parts(); ++to)
        if (order.position(to) == order.position(from) + distance && from / chunks() != to / chunks())
          copy_rows(tails[static_cast<std::size_t>(from / chunks())], from % chunks() * rows,
                    parts[static_cast<std::size_t>(to / chunks())], to % chunks() * rows, rows);
    return parts;
  }

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
            Shared{.seq = 330, .window = 20, .ranks = 3, .zigzag = true, .documents = true},
            // These reach as far as a chunk, into the next and over several.
            Shared{.seq = 64, .window = 17, .ranks = 4}, Shared{.seq = 64, .window = 40, .ranks = 4},
            Shared{.seq = 640, .window = 300, .ranks = 8, .documents = true, .heads = 1},
            Shared{.seq = 640, .window = 130, .ranks = 4, .zigzag = true, .documents = true, .heads = 1}})
        expect_rows_of_the_whole(set, c, type);
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
