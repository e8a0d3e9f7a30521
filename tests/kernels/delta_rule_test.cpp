// The gated delta rule in chunks against its recurrence, position by position, and the gradient against that
// of the recurrence; what stands in front of it against its formulas.
#include "tests/support/kernel_harness.hpp"

#include "prun/recurrent_state.hpp"

PRUN_TEST_KERNELS(all_kernels, delta_rule_test)

namespace prun::test::delta_rule_test {
namespace {

using Extents = std::vector<std::int64_t>;

// Says of what kind keys, shares and decays are. Of repeated keys with shares near 1 and little decay, the
// system that a chunk solves has entries near 1.
enum class Drawn { plain, repeated, forgetful };

struct Case {
  std::int64_t batch = 2, seq = 9, heads = 2, key = 4, values = 2, value = 3;
  Drawn drawn = Drawn::plain;
  std::vector<std::int64_t> documents = {};  // [batch, seq]; empty: one a sample

  std::int64_t start(std::int64_t b, std::int64_t t) const {
    return documents.empty() ? 0 : documents[static_cast<std::size_t>(b * seq + t)];
  }
};

struct Operands {
  Value q, k, v, g, beta, dy;

  Operands(const Case& c, DType type)
      : q(random_value(type, {c.batch, c.seq, c.heads, c.key}, 1)),
        k(random_value(type, {c.batch, c.seq, c.heads, c.key}, 2)),
        v(random_value(type, {c.batch, c.seq, c.heads * c.values, c.value}, 3)),
        g(random_value(OpShape::statistics(type), {c.batch, c.seq, c.heads * c.values}, 4)),
        beta(random_value(OpShape::statistics(type), {c.batch, c.seq, c.heads * c.values}, 5)),
        dy(random_value(type, {c.batch, c.seq, c.heads * c.values, c.value}, 6)) {
    if (c.drawn == Drawn::repeated) repeat_keys(c);
    normalise(q, c.key);
    normalise(k, c.key);
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double by = c.drawn == Drawn::repeated ? 1e-3 : c.drawn == Drawn::forgetful ? 60 : 0.7;
      g.set(i, -by * std::abs(g[i]));
      beta.set(i, c.drawn == Drawn::repeated ? 1 - 1e-3 * std::abs(beta[i]) : 0.5 + 0.45 * beta[i]);
    }
  }

 private:
  // Three keys take turns, each a little different every time.
  void repeat_keys(const Case& c) {
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t t = 3; t < c.seq; ++t)
        for (std::int64_t i = 0; i < c.heads * c.key; ++i) {
          const auto at = [&](std::int64_t position) {
            return static_cast<std::size_t>(((b * c.seq + position) * c.heads * c.key) + i);
          };
          k.set(at(t), k[at(t % 3)] + (t % 5 == 0 ? 1e-3 * k[at(t)] : 0));
        }
  }
  static void normalise(Value& x, std::int64_t width) {
    const auto n = static_cast<std::size_t>(width);
    for (std::size_t row = 0; row < x.size() / n; ++row) {
      double square = 0;
      for (std::size_t d = 0; d < n; ++d) square += x[row * n + d] * x[row * n + d];
      for (std::size_t d = 0; d < n; ++d) x.set(row * n + d, x[row * n + d] / std::sqrt(square));
    }
  }
};

Value like(const Value& x) { return Value(x.dtype(), x.dims()); }

Value state_of(const Case& c, const Operands& of) {
  return Value(of.g.dtype(), {c.batch, c.heads, DeltaState{c.key, c.values, c.value}.numbers()});
}

Value documents_of(const Case& c) {
  return c.documents.empty() ? Value() : integers(DType::i32, {c.batch, c.seq}, c.documents);
}

Call forward_of(const Case& c, const Operands& of, std::int64_t chunk) {
  Call call{"delta_rule", {of.q, of.k, of.v, of.g, of.beta, like(of.v), state_of(c, of), documents_of(c)}};
  call.attrs = {{.i = chunk}};
  return call;
}

Call backward_of(const Case& c, const Operands& of, std::int64_t chunk) {
  Call call{"delta_rule_grad",
            {of.dy, of.q, of.k, of.v, of.g, of.beta, documents_of(c), like(of.q), like(of.k), like(of.v),
             like(of.g), like(of.beta)}};
  call.attrs = {{.i = chunk}};
  return call;
}

// The recurrence of one value head and its gradient, in long double.
using Real = long double;

struct Recurrence {
  const Case& c;
  const Operands& of;
  std::vector<double> y, state, dq, dk, dv, dg, dbeta;

  Recurrence(const Case& sizes, const Operands& operands)
      : c(sizes),
        of(operands),
        y(of.v.size()),
        state(static_cast<std::size_t>(c.batch * c.heads * c.values * c.key * c.value)),
        dq(of.q.size()),
        dk(of.k.size()),
        dv(of.v.size()),
        dg(of.g.size()),
        dbeta(of.g.size()) {
    for (std::int64_t b = 0; b < c.batch; ++b)
      for (std::int64_t h = 0; h < c.heads; ++h)
        for (std::int64_t n = 0; n < c.values; ++n) run(b, h, n);
  }

 private:
  std::size_t key_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t d) const {
    return static_cast<std::size_t>(((b * c.seq + t) * c.heads + h) * c.key + d);
  }
  std::size_t gate_at(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t n) const {
    return static_cast<std::size_t>(((b * c.seq + t) * c.heads + h) * c.values + n);
  }

  void run(std::int64_t b, std::int64_t h, std::int64_t n) {
    const auto keys = static_cast<std::size_t>(c.key), width = static_cast<std::size_t>(c.value);
    const Real scale = 1 / std::sqrt(static_cast<Real>(c.key));
    using Matrix = std::vector<Real>;
    std::vector<Matrix> decayed, after, wanted;  // by position
    Matrix s(keys * width, 0);
    for (std::int64_t t = 0; t < c.seq; ++t) {
      const std::size_t gate = gate_at(b, t, h, n), value = gate * width;
      const Real kept = c.start(b, t) == t ? Real(0) : std::exp(static_cast<Real>(of.g[gate]));
      for (Real& x : s) x *= kept;
      decayed.push_back(s);
      Matrix miss(width);
      for (std::size_t d = 0; d < width; ++d) {
        miss[d] = of.v[value + d];
        for (std::size_t k = 0; k < keys; ++k)
          miss[d] -= of.k[key_at(b, t, h, static_cast<std::int64_t>(k))] * s[k * width + d];
      }
      for (std::size_t k = 0; k < keys; ++k)
        for (std::size_t d = 0; d < width; ++d)
          s[k * width + d] += of.k[key_at(b, t, h, static_cast<std::int64_t>(k))] * of.beta[gate] * miss[d];
      wanted.push_back(miss);
      after.push_back(s);
      for (std::size_t d = 0; d < width; ++d) {
        Real sum = 0;
        for (std::size_t k = 0; k < keys; ++k)
          sum += scale * of.q[key_at(b, t, h, static_cast<std::int64_t>(k))] * s[k * width + d];
        y[value + d] = static_cast<double>(sum);
      }
    }
    for (std::size_t i = 0; i < s.size(); ++i)
      state[static_cast<std::size_t>((b * c.heads + h) * c.values + n) * s.size() + i] =
          static_cast<double>(s[i]);
    Matrix ds(keys * width, 0);
    for (std::int64_t t = c.seq - 1; t >= 0; --t) back(b, t, h, n, scale, decayed, after, wanted, ds);
  }

  template <class Matrices, class Matrix>
  void back(std::int64_t b, std::int64_t t, std::int64_t h, std::int64_t n, Real scale,
            const Matrices& decayed, const Matrices& after, const Matrices& wanted, Matrix& ds) {
    const auto keys = static_cast<std::size_t>(c.key), width = static_cast<std::size_t>(c.value),
               now = static_cast<std::size_t>(t);
    const std::size_t gate = gate_at(b, t, h, n), value = gate * width;
    const Real share = of.beta[gate];
    Matrix learned(width, 0);
    for (std::size_t k = 0; k < keys; ++k) {
      const std::size_t at = key_at(b, t, h, static_cast<std::int64_t>(k));
      Real sum = 0;
      for (std::size_t d = 0; d < width; ++d) {
        sum += scale * after[now][k * width + d] * of.dy[value + d];
        ds[k * width + d] += scale * of.q[at] * of.dy[value + d];
        learned[d] += ds[k * width + d] * of.k[at];
      }
      dq[at] += static_cast<double>(sum);
    }
    Real of_share = 0, of_decay = 0;
    for (std::size_t d = 0; d < width; ++d) {
      of_share += learned[d] * wanted[now][d];
      dv[value + d] = static_cast<double>(share * learned[d]);
    }
    dbeta[gate] = static_cast<double>(of_share);
    const bool begins = c.start(b, t) == t;
    for (std::size_t k = 0; k < keys; ++k) {
      const std::size_t at = key_at(b, t, h, static_cast<std::int64_t>(k));
      Real sum = 0;
      for (std::size_t d = 0; d < width; ++d) {
        Real& slope = ds[k * width + d];
        sum += share * (slope * wanted[now][d] - decayed[now][k * width + d] * learned[d]);
        slope -= share * learned[d] * of.k[at];
        of_decay += slope * decayed[now][k * width + d];
        slope *= begins ? Real(0) : std::exp(static_cast<Real>(of.g[gate]));
      }
      dk[at] += static_cast<double>(sum);
    }
    dg[gate] = static_cast<double>(of_decay);
  }
};

// Expects numbers that are as close as `bound` of the largest.
void expect_near(const std::vector<double>& got, const std::vector<double>& want, double bound,
                 const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  double largest = 0, apart = 0;
  for (std::size_t i = 0; i < want.size(); ++i) {
    largest = std::max(largest, std::abs(want[i]));
    apart = std::isfinite(got[i]) ? std::max(apart, std::abs(got[i] - want[i])) : INFINITY;
  }
  EXPECT_GT(largest, 0) << what;
  EXPECT_LE(apart, bound * largest) << what;
}

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {},
      {.seq = 1, .values = 1},
      {.batch = 1, .seq = 133, .heads = 1, .key = 16, .values = 3, .value = 24},
      {.batch = 1, .seq = 130, .heads = 2, .key = 12, .value = 8, .drawn = Drawn::repeated},
      {.batch = 1, .seq = 70, .key = 8, .value = 8, .drawn = Drawn::forgetful},
      {.batch = 2, .seq = 9, .documents = {0, 0, 0, 3, 3, 5, 5, 5, 8, 0, 1, 1, 1, 1, 5, 5, 5, 5}},
      {.batch = 1, .seq = 9, .drawn = Drawn::repeated, .documents = {0, 0, 0, 0, 4, 4, 4, 4, 4}},
  };
  return all;
}

double bound_of(DType type) { return type == DType::f64 ? 1e-12 : type == DType::f32 ? 3e-4 : 4e-2; }

template <class Body>
void for_cases(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
      for (std::size_t i = 0; i < cases().size(); ++i)
        for (const std::int64_t chunk : {1, 5, 64}) {
          if (type != DType::f64 && chunk != 64) continue;
          SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + ", case " + std::to_string(i) +
                       ", chunks of " + std::to_string(chunk));
          body(set, cases()[i], Operands(cases()[i], type), bound_of(type), chunk);
        }
}

TEST(DeltaRule, IsItsRecurrence) {
  for_cases(
      [](const InstructionSet& set, const Case& c, const Operands& of, double bound, std::int64_t chunk) {
        const Recurrence want(c, of);
        const Call call = forward_of(c, of, chunk);
        const std::vector<Value> got = run(set, call);
        expect_near(got[5].numbers(), want.y, bound, "y");
        const DeltaState layout{c.key, c.values, c.value};
        std::vector<double> state;
        for (std::int64_t i = 0; i < c.batch * c.heads; ++i) {
          for (std::int64_t d = 0; d < layout.matrix(c.values); ++d)
            state.push_back(got[6][static_cast<std::size_t>(i * layout.numbers() + d)]);
          EXPECT_EQ(got[6][static_cast<std::size_t>(i * layout.numbers() + layout.first())],
                    static_cast<double>(c.seq));
        }
        expect_near(state, want.state, bound, "state");
        if (c.documents.empty())
          expect_batch_free(set, call, {0, 1, 2, 3, 4, 5, 6});
        else
          expect_batch_free(set, call, {0, 1, 2, 3, 4, 5, 6, 7});
      });
}

TEST(DeltaRule, GradientIsThatOfTheRecurrence) {
  for_cases(
      [](const InstructionSet& set, const Case& c, const Operands& of, double bound, std::int64_t chunk) {
        const Recurrence want(c, of);
        const std::vector<Value> got = run(set, backward_of(c, of, chunk));
        expect_near(got[7].numbers(), want.dq, bound, "dq");
        expect_near(got[8].numbers(), want.dk, bound, "dk");
        expect_near(got[9].numbers(), want.dv, bound, "dv");
        if (c.seq > 1) expect_near(got[10].numbers(), want.dg, bound, "dg");
        expect_near(got[11].numbers(), want.dbeta, bound, "dbeta");
      });
}

// Chunks of any size give the same numbers for each draw, within 1e-12 of the largest.
TEST(DeltaRule, ChunksOfAnySizeAgree) {
  for (const InstructionSet& set : all_kernels())
    for (const Drawn drawn : {Drawn::plain, Drawn::repeated, Drawn::forgetful}) {
      const Case c{.batch = 1, .seq = 200, .key = 16, .value = 16, .drawn = drawn};
      const Operands of(c, DType::f64);
      const std::vector<Value> one = run_on(set, forward_of(c, of, 1), 2),
                               one_back = run_on(set, backward_of(c, of, 1), 2);
      for (const std::int64_t chunk : {7, 16, 64, 128, 200}) {
        const std::vector<Value> got = run_on(set, forward_of(c, of, chunk), 2),
                                 back = run_on(set, backward_of(c, of, chunk), 2);
        for (const std::size_t i : {5, 6}) expect_near(got[i].numbers(), one[i].numbers(), 1e-12, "forward");
        for (std::size_t i = 7; i < 12; ++i)
          expect_near(back[i].numbers(), one_back[i].numbers(), 1e-12, "gradient");
      }
    }
}

// Without decay and with shares of 1, orthonormal keys are a table: the last value of each is what it holds.
TEST(DeltaRule, HoldsTheLastValueOfEachKey) {
  const Case c{.batch = 1, .seq = 12, .heads = 1, .key = 4, .values = 1, .value = 2};
  Operands of(c, DType::f64);
  const auto width = static_cast<std::size_t>(c.value), keys = static_cast<std::size_t>(c.key);
  for (std::size_t t = 0; t < 12; ++t) {
    for (std::size_t d = 0; d < keys; ++d) of.k.set(t * keys + d, d == t % 3 ? 1 : 0);
    of.g.set(t, 0);
    of.beta.set(t, 1);
  }
  for (const InstructionSet& set : all_kernels()) {
    const Value state = run(set, forward_of(c, of, 5))[6];
    for (std::size_t d = 0; d < width; ++d) {
      for (std::size_t key = 0; key < 3; ++key)
        EXPECT_NEAR(state[key * width + d], of.v[(9 + key) * width + d], 1e-14);
      EXPECT_EQ(state[3 * width + d], 0);
    }
  }
}

TEST(DeltaRule, LearnsNothingWithSharesOfZero) {
  const Case c{};
  Operands of(c, DType::f64);
  for (std::size_t i = 0; i < of.beta.size(); ++i) of.beta.set(i, 0);
  for (const InstructionSet& set : all_kernels())
    for (const double y : run(set, forward_of(c, of, 4))[5].numbers()) EXPECT_EQ(y, 0);
}

// Rows [from, from + count) of each sample.
Value rows(const Value& x, std::int64_t from, std::int64_t count) {
  Extents dims = x.dims();
  const std::int64_t seq = dims[1], width = static_cast<std::int64_t>(x.size()) / (dims[0] * seq);
  dims[1] = count;
  Value part(x.dtype(), dims);
  for (std::int64_t b = 0; b < dims[0]; ++b)
    for (std::int64_t i = 0; i < count * width; ++i)
      part.set(static_cast<std::size_t>(b * count * width + i),
               from + i / width < seq ? x[static_cast<std::size_t>((b * seq + from) * width + i)] : 0.25);
  return part;
}

// Some positions at a time, of which the last ones may be none of the text: the next call begins in front of
// them, wherever that is.
TEST(DeltaRule, GoesOnFromItsState) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16}) {
      const Case c{.seq = 37, .key = 8, .value = 5};
      const Operands of(c, type);
      const Recurrence want(c, of);
      Value kept(of.g.dtype(), state_of(c, of).dims());
      const std::vector<std::int64_t> begins = {0, 8, 16, 19, 20, 21, 21, 22, 29, 31};
      for (const std::int64_t at : begins) {
        const std::int64_t few = 8;
        Call call{"delta_rule_at",
                  {rows(of.q, at, few), rows(of.k, at, few), rows(of.v, at, few), rows(of.g, at, few),
                   rows(of.beta, at, few), number(static_cast<double>(at)), kept, rows(of.v, at, few),
                   state_of(c, of)}};
        call.attrs = {{.i = 64}};
        const std::vector<Value> got = run(set, call);
        kept = got[6];
        const std::int64_t width = c.heads * c.values * c.value, real = std::min(few, c.seq - at);
        for (std::int64_t b = 0; b < c.batch; ++b)
          for (std::int64_t i = 0; i < real * width; ++i)
            EXPECT_NEAR(got[7][static_cast<std::size_t>(b * few * width + i)],
                        want.y[static_cast<std::size_t>((b * c.seq + at) * width + i)], bound_of(type))
                << "position " << at + i / width;
      }
    }
}

// The kept state does not reach a position that is neither in the last call nor behind it: no number comes
// out.
TEST(DeltaRule, GivesNoNumberBehindAGap) {
  const Case c{.batch = 1, .seq = 8};
  const Operands of(c, DType::f64);
  for (const InstructionSet& set : all_kernels()) {
    Call call{"delta_rule_at",
              {of.q, of.k, of.v, of.g, of.beta, number(0), state_of(c, of), like(of.v), state_of(c, of)}};
    call.attrs = {{.i = 64}};
    call.operands[6] = run_on(set, call, 1)[6];
    call.operands[5] = number(9);
    for (const double y : run_on(set, call, 1)[7].numbers()) EXPECT_TRUE(std::isnan(y));
  }
}

// Computes what ranks that have runs of positions do together; exchanges are copies here.
class RuleInRuns {
 public:
  RuleInRuns(const InstructionSet& set, const Case& c, const Operands& of, const SharedRuns& runs,
             std::int64_t chunk)
      : set_(set), c_(c), of_(of), documents_(documents_of(c)), runs_(runs) {
    attrs_ = {{.i = chunk}, {.i = runs.rows()}, {.i = runs.chunks()}};
  }

  // Expects what the whole rule gives.
  void expect(double bound) const {
    const Value maps = all_maps(), starts = states(maps, false), ends = states(maps, true);
    const std::vector<Value> want = run(set_, forward_of(c_, of_, attrs_[0].i)),
                             back = run(set_, backward_of(c_, of_, attrs_[0].i));
    std::vector<std::vector<double>> got = {std::vector<double>(of_.v.size())};
    for (const std::size_t i : {7, 8, 9, 10, 11}) got.emplace_back(back[i].size());
    for (std::int64_t rank = 0; rank < runs_.ranks; ++rank) {
      const Value q = part(of_.q, rank), k = part(of_.k, rank), v = part(of_.v, rank), g = part(of_.g, rank),
                  beta = part(of_.beta, rank), dy = part(of_.dy, rank), documents = part(documents_, rank);
      const std::int64_t first = rank * runs_.own();
      runs_.add(run(set_, {"delta_rule_runs",
                           {q, k, v, g, beta, starts, documents, like(v)},
                           attrs_,
                           {{0, 1, first}}})[7],
                rank, 0, got[0]);
      const std::vector<Value> grads = run(set_, {"delta_rule_runs_grad",
                                                  {dy, q, k, v, g, beta, starts, ends, documents, like(q),
                                                   like(k), like(v), like(g), like(beta)},
                                                  attrs_,
                                                  {{1, 1, first}}});
      for (std::size_t i = 0; i < 5; ++i) runs_.add(grads[9 + i], rank, 0, got[1 + i]);
    }
    expect_near(got[0], want[5].numbers(), bound, "y");
    for (std::size_t i = 0; i < 5; ++i)
      expect_near(got[1 + i], back[7 + i].numbers(), bound, "gradient " + std::to_string(i));
  }

 private:
  Value part(const Value& whole, std::int64_t rank) const {
    return whole.shape().present ? runs_.part(whole, rank) : Value();
  }
  // Returns those of all runs, in their order.
  Value all_maps() const {
    const std::int64_t width = c_.key * (c_.key + 2 * c_.value), here = runs_.own() / runs_.rows();
    Value all(of_.g.dtype(), {c_.batch, runs_.runs(), c_.heads * c_.values, width});
    for (std::int64_t rank = 0; rank < runs_.ranks; ++rank) {
      const Value own =
          run(set_, {"delta_maps",
                     {part(of_.k, rank), part(of_.v, rank), part(of_.g, rank), part(of_.beta, rank),
                      part(of_.q, rank), part(of_.dy, rank), part(documents_, rank),
                      Value(of_.g.dtype(), {c_.batch, here, c_.heads * c_.values, width})},
                     attrs_,
                     {{0, 1, rank * runs_.own()}}})[7];
      const std::int64_t numbers = c_.heads * c_.values * width;
      for (std::int64_t b = 0; b < c_.batch; ++b)
        for (std::int64_t i = 0; i < here; ++i)
          for (std::int64_t e = 0; e < numbers; ++e) {
            const std::int64_t run =
                runs_.order().position(rank * runs_.own() + i * runs_.rows()) / runs_.rows();
            all.set(static_cast<std::size_t>((b * runs_.runs() + run) * numbers + e),
                    own[static_cast<std::size_t>((b * here + i) * numbers + e)]);
          }
    }
    return all;
  }
  Value states(const Value& maps, bool back) const {
    return run(
        set_, {"delta_starts",
               {maps, Value(maps.dtype(), {c_.batch, runs_.runs(), c_.heads * c_.values, c_.key * c_.value})},
               {{.i = c_.key}, {.i = c_.value}, {.i = back}}})[1];
  }

  const InstructionSet& set_;
  const Case& c_;
  const Operands& of_;
  const Value documents_;
  SharedRuns runs_;
  std::vector<Attr> attrs_;
};

// Documents begin within runs, where a run does, and pass over several.
TEST(DeltaRule, RunsGiveWhatWholeSequencesDo) {
  std::vector<std::int64_t> starts;
  for (const std::vector<std::int64_t>& begins : {std::vector<std::int64_t>{0, 3, 4, 18, 30}, {0, 36}})
    for (std::int64_t i = 0, start = 0; i < 48; ++i) {
      if (std::find(begins.begin(), begins.end(), i) != begins.end()) start = i;
      starts.push_back(start);
    }
  const std::vector<Case> all = {{.batch = 2, .seq = 48, .key = 5, .value = 3},
                                 {.batch = 1, .seq = 48, .key = 4, .value = 6, .drawn = Drawn::repeated},
                                 {.batch = 1, .seq = 48, .drawn = Drawn::forgetful},
                                 {.batch = 2, .seq = 48, .documents = starts}};
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16})
      for (const Case& c : all)
        for (const SharedRuns runs : {SharedRuns{48, 2, true}, {48, 4, true}, {48, 4, false}, {48, 3, false}})
          for (const std::int64_t chunk : {5, 64}) {
            if (type != DType::f64 && chunk != 64) continue;
            SCOPED_TRACE(std::string(set.name) + " " + name_of(type) + ", " + std::to_string(runs.ranks) +
                         (runs.zigzag ? " ranks in zigzag" : " ranks"));
            RuleInRuns(set, c, Operands(c, type), runs, chunk).expect(bound_of(type));
          }
}

}  // namespace
}  // namespace prun::test::delta_rule_test
