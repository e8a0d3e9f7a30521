// attention and its gradient against the textbook formulas in double, for every type and instruction set.
#include "tests/support/kernel_call.hpp"

PRUN_TEST_KERNELS(all_kernels, attention_test)

namespace prun::test::attention_test {
namespace {

using prun::Attr;
using prun::DType;
using prun::test::expect_close;
using prun::test::find_kernel;
using prun::test::InstructionSet;
using prun::test::launch;
using prun::test::shape_of;
using prun::test::Value;

struct Case {
  std::int64_t batch, seq, heads, packed, width;
  bool causal;
  double amplitude = 1;
  std::int64_t document = 0;  // about how many positions one has; 0: they are not kept apart
  std::int64_t window = 0;    // positions that one sees at most in a direction; 0: all
  double softcap = 0;         // bounds scores

  std::int64_t queries() const { return packed - 2; }
};

// Lengths around the blocks of queries and keys, groups of 1, 2 and 4 queries, peaked weights.
const std::vector<Case> cases = {
    {1, 1, 1, 3, 8, true},
    {2, 7, 2, 3, 5, true},
    {2, 7, 2, 4, 5, false},
    {1, 64, 1, 3, 64, true},
    {2, 65, 1, 4, 17, true},
    {1, 130, 2, 6, 32, true},
    {1, 129, 1, 6, 31, false},
    {1, 300, 1, 4, 24, true},
    {1, 257, 2, 3, 16, false},
    {1, 70, 1, 3, 256, true},
    {1, 66, 2, 5, 128, true},
    {3, 33, 3, 4, 40, true},
    {1, 90, 2, 3, 16, true, 8},
    {2, 70, 2, 4, 16, true, 1, 9},
    {1, 300, 1, 3, 8, true, 1, 100},
    {2, 600, 1, 3, 8, true, 1, 270},
    {2, 7, 2, 4, 5, true, 1, 0, 1},
    {1, 65, 1, 4, 17, true, 8, 0, 9},
    {1, 300, 2, 3, 8, true, 1, 0, 64},
    {1, 700, 1, 4, 8, true, 1, 0, 257},
    {1, 130, 1, 3, 8, true, 1, 0, 500},
    {2, 300, 1, 3, 8, true, 1, 100, 40},
    {2, 7, 2, 4, 5, true, 3, 0, 0, 2},
    {2, 7, 2, 4, 5, false, 1, 0, 1},
    {1, 130, 1, 4, 17, false, 8, 0, 9},
    {1, 700, 2, 3, 8, false, 1, 0, 257},
    {2, 300, 1, 4, 8, false, 2, 0, 40, 1.5},
    {1, 129, 1, 4, 31, false, 2, 0, 0, 0.5},
    {2, 300, 1, 3, 16, true, 4, 100, 40, 1.5},
};

DType statistics(DType type) { return type == DType::f64 ? DType::f64 : DType::f32; }

// The slots [first, first + count) of each head group of x.
Value slots_of(DType type, const Value& x, const std::vector<std::int64_t>& dims, std::int64_t first,
               std::int64_t count) {
  const auto packed = static_cast<std::size_t>(x.dims()[3]), width = static_cast<std::size_t>(x.dims()[4]);
  Value part(type, dims);
  std::size_t next = 0;
  for (std::size_t group = 0; group < x.size() / (packed * width); ++group)
    for (std::size_t i = 0; i < static_cast<std::size_t>(count) * width; ++i)
      part.set(next++, x[(group * packed + static_cast<std::size_t>(first)) * width + i]);
  return part;
}

// The operands of one case, and the reference's view of them in double: queries, keys and values packed.
struct Problem {
  Case c;
  DType type;
  std::vector<Attr> attrs;
  Value x, dy, y, lse, dx;
  Value documents;  // absent where they are not kept apart

  Problem(const Case& which, DType t)
      : c(which),
        type(t),
        attrs{Attr{.i = which.causal}, Attr{.i = which.window}, Attr{.f = which.softcap}},
        x(Value::random(t, {c.batch, c.seq, c.heads, c.packed, c.width}, 1)),
        dy(Value::random(t, {c.batch, c.seq, c.heads, c.queries(), c.width}, 2)) {
    for (std::size_t i = 0; i < x.size(); ++i) x.set(i, x[i] * c.amplitude);
    if (c.document > 0) make_documents();
    make_outputs();
  }
  // Of uneven lengths, other ones in each sample.
  void make_documents() {
    documents = Value(DType::i32, {c.batch, c.seq});
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t i = 0, start = 0; i < c.seq; ++i) {
        if (i - start >= c.document + (start + b) % 5) start = i;
        documents.set(static_cast<std::size_t>(b * c.seq + i), static_cast<double>(start));
      }
  }
  std::size_t first_key(std::int64_t b, std::int64_t row) const {
    const std::size_t near =
        c.window > 0 ? static_cast<std::size_t>(std::max<std::int64_t>(row + 1 - c.window, 0)) : 0;
    if (c.document == 0) return near;
    return std::max(near, static_cast<std::size_t>(documents[static_cast<std::size_t>(b * c.seq + row)]));
  }
  void make_outputs() {
    const std::int64_t batch = x.dims()[0];
    y = Value(type, {batch, c.seq, c.heads, c.queries(), c.width});
    lse = Value(statistics(type), {batch, c.heads, c.queries(), c.seq});
    dx = Value(type, {batch, c.seq, c.heads, c.packed, c.width});
  }
  Problem only(std::int64_t batch) const {
    Problem part = *this;
    part.x = x.slice(batch), part.dy = dy.slice(batch);
    if (c.document > 0) part.documents = documents.slice(batch);
    part.make_outputs();
    return part;
  }
  void run(const InstructionSet& set, int threads) {
    const std::vector<std::int64_t> queries = y.dims(), keys = {queries[0], c.seq, c.heads, c.width};
    Value q = slots_of(type, x, queries, 0, c.queries()), k = slots_of(type, x, keys, c.packed - 2, 1),
          v = slots_of(type, x, keys, c.packed - 1, 1), dq(type, queries), dk(type, keys), dv(type, keys);
    launch(find_kernel(set, "attention"), {&q, &k, &v, &y, &lse, &documents}, attrs, threads);
    launch(find_kernel(set, "attention_grad"), {&dy, &q, &k, &v, &y, &lse, &dq, &dk, &dv, &documents}, attrs,
           threads);
    put_slots(dq, 0, c.queries());
    put_slots(dk, c.packed - 2, 1);
    put_slots(dv, c.packed - 1, 1);
  }
  // The same on x as it is, dx likewise.
  void run_packed(const InstructionSet& set, int threads) {
    launch(find_kernel(set, "attention_packed"), {&x, &y, &lse, &documents}, attrs, threads);
    launch(find_kernel(set, "attention_packed_grad"), {&dy, &x, &y, &lse, &dx, &documents}, attrs, threads);
  }
  // Writes them into dx.
  void put_slots(const Value& part, std::int64_t first, std::int64_t count) {
    const auto each = static_cast<std::size_t>(count * c.width);
    for (std::size_t i = 0; i < part.size(); ++i)
      dx.set(i / each * static_cast<std::size_t>(c.packed * c.width) +
                 static_cast<std::size_t>(first * c.width) + i % each,
             part[i]);
  }
  std::size_t packed_at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t slot) const {
    return static_cast<std::size_t>((((b * c.seq + s) * c.heads + h) * c.packed + slot) * c.width);
  }
  std::size_t query_at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t q) const {
    return static_cast<std::size_t>((((b * c.seq + s) * c.heads + h) * c.queries() + q) * c.width);
  }
};

struct Reference {
  std::vector<double> y, lse, dx;
};

double dot(const Value& a, std::size_t at_a, const Value& b, std::size_t at_b, std::int64_t n) {
  double sum = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(n); ++d) sum += a[at_a + d] * b[at_b + d];
  return sum;
}

// The weights of one query over the keys it sees; returns the log of the sum of exponentials.
double softmax(std::vector<double>& scores) {
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (const double score : scores) sum += std::exp(score - largest);
  for (double& score : scores) score = std::exp(score - largest) / sum;
  return largest + std::log(sum);
}

// One query's part of everything.
void add_query(const Problem& p, std::int64_t b, std::int64_t h, std::int64_t q, std::int64_t row,
               Reference& r) {
  const Case& c = p.c;
  const auto width = static_cast<std::size_t>(c.width);
  const double scale = 1 / std::sqrt(static_cast<double>(c.width));
  const std::size_t at_q = p.packed_at(b, row, h, q), at_y = p.query_at(b, row, h, q);
  const std::size_t first = p.first_key(b, row);
  const std::int64_t last = c.causal ? row + 1 : c.window > 0 ? std::min(c.seq, row + c.window) : c.seq;
  std::vector<double> weights(static_cast<std::size_t>(last), -1e300);
  for (std::size_t j = first; j < weights.size(); ++j)
    weights[j] = scale * dot(p.x, at_q, p.x, p.packed_at(b, std::int64_t(j), h, c.packed - 2), c.width);
  std::vector<double> slopes(weights.size(), 1);
  if (c.softcap > 0)
    for (std::size_t j = first; j < weights.size(); ++j) {
      const double t = std::tanh(weights[j] / c.softcap);
      weights[j] = c.softcap * t, slopes[j] = 1 - t * t;
    }
  r.lse[static_cast<std::size_t>(((b * c.heads + h) * c.queries() + q) * c.seq + row)] = softmax(weights);
  double delta = 0;
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const std::size_t at_v = p.packed_at(b, std::int64_t(j), h, c.packed - 1);
    delta += weights[j] * dot(p.dy, at_y, p.x, at_v, c.width);
    for (std::size_t d = 0; d < width; ++d) {
      r.y[at_y + d] += weights[j] * p.x[at_v + d];
      r.dx[at_v + d] += weights[j] * p.dy[at_y + d];
    }
  }
  for (std::size_t j = 0; j < weights.size(); ++j) {
    const std::size_t at_k = p.packed_at(b, std::int64_t(j), h, c.packed - 2);
    const double dweight = dot(p.dy, at_y, p.x, p.packed_at(b, std::int64_t(j), h, c.packed - 1), c.width);
    const double dscore = weights[j] * (dweight - delta) * slopes[j] * scale;
    for (std::size_t d = 0; d < width; ++d) {
      r.dx[at_q + d] += dscore * p.x[at_k + d];
      r.dx[at_k + d] += dscore * p.x[at_q + d];
    }
  }
}

Reference reference(const Problem& p) {
  Reference r{std::vector<double>(p.y.size()), std::vector<double>(p.lse.size()),
              std::vector<double>(p.x.size())};
  for (std::int64_t b = 0; b < p.c.batch; ++b)
    for (std::int64_t h = 0; h < p.c.heads; ++h)
      for (std::int64_t q = 0; q < p.c.queries(); ++q)
        for (std::int64_t row = 0; row < p.c.seq; ++row) add_query(p, b, h, q, row, r);
  return r;
}

std::string label(const InstructionSet& set, DType type, std::size_t index, const char* what) {
  return std::string(set.name) + " " + name_of(type) + " case " + std::to_string(index) + " " + what;
}

template <class Check>
void for_all(const Check& check) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (std::size_t index = 0; index < cases.size(); ++index) check(Problem(cases[index], type), index);
}

TEST(Attention, ForwardAndGradientMatchDouble) {
  for_all([](const Problem& p, std::size_t index) {
    const Reference want = reference(p);
    const double amplitude = p.c.amplitude;
    const bool narrow = size_of(p.type) == 2;
    const double rounding = p.type == DType::f16 ? 1.0 / 8 : 1;  // fp16 keeps three bits more
    const double exact = p.type == DType::f64 ? 1e-12 : 2e-5 * amplitude;
    for (const InstructionSet& set : all_kernels()) {
      Problem got = p;
      got.run(set, 2);
      expect_close(got.y, want.y, narrow ? 5e-3 * rounding : exact, label(set, p.type, index, "y"));
      expect_close(got.lse, want.lse, exact, label(set, p.type, index, "lse"));
      // The gradient reads y as rounded.
      expect_close(got.dx, want.dx, narrow ? 2e-2 * rounding * amplitude : exact,
                   label(set, p.type, index, "dx"));
    }
  });
}

TEST(Attention, BitsDoNotDependOnThreads) {
  for_all([](const Problem& p, std::size_t index) {
    for (const InstructionSet& set : all_kernels()) {
      Problem alone = p;
      alone.run(set, 1);
      for (const int threads : {2, 3, 8}) {
        Problem many = p;
        many.run(set, threads);
        EXPECT_EQ(many.y.bytes(), alone.y.bytes()) << label(set, p.type, index, "y, threads ") << threads;
        EXPECT_EQ(many.lse.bytes(), alone.lse.bytes())
            << label(set, p.type, index, "lse, threads ") << threads;
        EXPECT_EQ(many.dx.bytes(), alone.dx.bytes()) << label(set, p.type, index, "dx, threads ") << threads;
      }
    }
  });
}

TEST(Attention, PackedOrApartGivesTheSameBits) {
  for_all([](const Problem& p, std::size_t index) {
    for (const InstructionSet& set : all_kernels())
      for (const int threads : {1, 3}) {
        Problem apart = p, packed = p;
        apart.run(set, threads);
        packed.run_packed(set, threads);
        EXPECT_EQ(packed.y.bytes(), apart.y.bytes()) << label(set, p.type, index, "y");
        EXPECT_EQ(packed.lse.bytes(), apart.lse.bytes()) << label(set, p.type, index, "lse");
        EXPECT_EQ(packed.dx.bytes(), apart.dx.bytes()) << label(set, p.type, index, "dx");
      }
  });
}

TEST(Attention, BitsDoNotDependOnBatching) {
  for_all([](const Problem& p, std::size_t index) {
    for (const InstructionSet& set : all_kernels()) {
      Problem whole = p;
      whole.run(set, 2);
      for (std::int64_t b = 0; b < p.c.batch; ++b) {
        Problem part = p.only(b);
        part.run(set, 2);
        EXPECT_EQ(part.y.bytes(), whole.y.slice(b).bytes()) << label(set, p.type, index, "y");
        EXPECT_EQ(part.lse.bytes(), whole.lse.slice(b).bytes()) << label(set, p.type, index, "lse");
        EXPECT_EQ(part.dx.bytes(), whole.dx.slice(b).bytes()) << label(set, p.type, index, "dx");
      }
    }
  });
}

TEST(Attention, NonFiniteInputShowsInTheResult) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const double poison : {std::nan(""), infinity, -infinity})
      for (const std::int64_t slot : {0, 1, 2})
        for (const InstructionSet& set : all_kernels()) {
          Problem p({1, 80, 1, 3, 16, true}, type);
          for (std::size_t d = 0; d < 16; ++d) p.x.set(p.packed_at(0, 40, 0, slot) + d, poison);
          p.run(set, 2);
          // Position 40 sees itself whichever slot is poisoned.
          EXPECT_FALSE(std::isfinite(p.y[p.query_at(0, 40, 0, 0)]))
              << label(set, type, std::size_t(slot), "poisoned slot, poison ") << poison;
        }
}

struct Operands {
  Value q, k, v, y, lse;

  Operands(DType type, DType result, std::int64_t batch, std::int64_t seq, std::int64_t heads,
           std::int64_t width)
      : q(type, {batch, seq, heads, 1, width}),
        k(type, {batch, seq, heads, width}),
        v(type, {batch, seq, heads, width}),
        y(result, {batch, seq, heads, 1, width}),
        lse(DType::f32, {batch, heads, 1, seq}) {}
};

TEST(Attention, WorkspaceDoesNotGrowWithHeadsOrSquareOfLength) {
  const Attr causal[] = {{.i = 1}, {.i = 0}, {.f = 0}};
  Operands o(DType::f32, DType::f32, 4, 1024, 16, 64);
  for (const InstructionSet& set : all_kernels()) {
    const auto forward =
        find_kernel(set, "attention").workspace(shape_of({&o.q, &o.k, &o.v, &o.y, &o.lse}, causal), 2);
    const auto backward =
        find_kernel(set, "attention_grad")
            .workspace(shape_of({&o.y, &o.q, &o.k, &o.v, &o.y, &o.lse, &o.q, &o.k, &o.v}, causal), 2);
    EXPECT_LT(forward, 4 << 20) << set.name;
    EXPECT_LT(backward, 4 << 20) << set.name;
  }
}

// Threads have a row of slopes each where scores are bounded.
TEST(Attention, WorkspaceHasRoomForSlopesOfBoundedScores) {
  const Attr plain[] = {{.i = 1}, {.i = 0}, {.f = 0}}, bounded[] = {{.i = 1}, {.i = 0}, {.f = 30}};
  Operands o(DType::f32, DType::f32, 1, 256, 2, 16);
  for (const InstructionSet& set : all_kernels()) {
    const auto bytes = [&](const Attr* attrs) {
      return find_kernel(set, "attention_grad")
          .workspace(shape_of({&o.y, &o.q, &o.k, &o.v, &o.y, &o.lse, &o.q, &o.k, &o.v}, attrs), 2);
    };
    EXPECT_GE(bytes(bounded) - bytes(plain), 2 * 1024) << set.name;
  }
}

TEST(Attention, MixedTypesAreRefused) {
  const Attr causal[] = {{.i = 1}, {.i = 0}, {.f = 0}};
  Operands o(DType::f32, DType::bf16, 1, 4, 1, 8);
  for (const InstructionSet& set : all_kernels())
    EXPECT_EQ(find_kernel(set, "attention").select(shape_of({&o.q, &o.k, &o.v, &o.y, &o.lse}, causal)),
              nullptr);
}

}  // namespace
}  // namespace prun::test::attention_test
