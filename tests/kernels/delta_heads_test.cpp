// Ops around the gated delta rule, and gates of outputs, are compared with their formulas in double.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, delta_heads_test)

namespace prun::test::delta_heads_test {
namespace {

template <class Body>
void for_types(Body body) {
  for (const InstructionSet& set : all_kernels())
    for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16}) {
      SCOPED_TRACE(std::string(set.name) + " " + name_of(type));
      body(set, type);
    }
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(OutputGate, MatchesTheFormula) {
  for_types([](const InstructionSet& set, DType type) {
    for (const std::int64_t silu : {0, 1}) {
      const Value x = random_value(type, {2, 3, 2, 37}, 1, 2), gate = random_value(type, {2, 3, 2, 37}, 2, 4),
                  dy = random_value(type, {2, 3, 2, 37}, 3), blank(type, {2, 3, 2, 37});
      std::vector<double> y, dgate;
      for (std::size_t i = 0; i < x.size(); ++i) {
        const double s = sigmoid(gate[i]);
        y.push_back(x[i] * s * (silu ? gate[i] : 1));
        dgate.push_back(dy[i] * x[i] * s * (silu ? 1 + gate[i] * (1 - s) : 1 - s));
      }
      Call forward{"output_gate", {x, gate, blank}}, back{"output_gate_grad", {dy, x, gate, blank}};
      forward.attrs = back.attrs = {{.i = silu}};
      expect_close(run(set, forward)[2], y, tolerance(type), "y");
      expect_close(run(set, back)[3], dgate, tolerance(type), "dgate");
      expect_batch_free(set, forward, {0, 1, 2});
      expect_batch_free(set, back, {0, 1, 2, 3});
    }
  });
}

TEST(OutputGate, TakesSlotsAndGatesApart) {
  for_types([](const InstructionSet& set, DType type) {
    const Value x = random_value(type, {2, 2, 6, 5}, 1);
    const std::vector<Value> apart =
        run(set, {"split_gate", {x, Value(type, {2, 2, 3, 5}), Value(type, {2, 2, 3, 5})}});
    for (std::size_t slot = 0; slot < 12; ++slot)
      for (std::size_t d = 0; d < 5; ++d) {
        EXPECT_EQ(apart[1][slot * 5 + d], x[2 * slot * 5 + d]);
        EXPECT_EQ(apart[2][slot * 5 + d], x[(2 * slot + 1) * 5 + d]);
      }
    EXPECT_EQ(run(set, {"join_gate", {apart[1], apart[2], Value(type, x.dims())}})[2].bytes(), x.bytes());
  });
}

TEST(DeltaHeads, MixedProjectionComesApart) {
  for_types([](const InstructionSet& set, DType type) {
    const Value x = random_value(type, {2, 3, 2, 11}, 1);
    const std::vector<Value> apart =
        run(set, {"split_mixed", {x, Value(type, {2, 3, 2, 5}), Value(type, {2, 3, 4, 3})}});
    for (std::size_t row = 0; row < 12; ++row)
      for (std::size_t i = 0; i < 11; ++i)
        EXPECT_EQ(i < 5 ? apart[1][row * 5 + i] : apart[2][row * 6 + i - 5], x[row * 11 + i]);
    EXPECT_EQ(run(set, {"join_mixed", {apart[1], apart[2], Value(type, x.dims())}})[2].bytes(), x.bytes());
  });
}

TEST(DeltaHeads, QueriesAndKeysHaveLengthOne) {
  constexpr double eps = 1e-2;  // shows where it stands
  for_types([](const InstructionSet& set, DType type) {
    const std::int64_t key = 5, all = 2 * key + 6;
    const Value x = random_value(type, {2, 3, 2, all}, 1), dq = random_value(type, {2, 3, 2, key}, 2),
                dk = random_value(type, {2, 3, 2, key}, 3), dv = random_value(type, {2, 3, 4, 3}, 4);
    std::vector<double> parts[3], dx(x.size());
    for (std::size_t row = 0; row < 12; ++row) {
      for (std::size_t part = 0; part < 2; ++part) {
        const std::size_t from = row * 16 + part * 5;
        const Value& d = part == 0 ? dq : dk;
        double square = eps, along = 0;
        for (std::size_t i = 0; i < 5; ++i) square += x[from + i] * x[from + i];
        const double by = 1 / std::sqrt(square);
        for (std::size_t i = 0; i < 5; ++i) along += x[from + i] * by * d[row * 5 + i];
        for (std::size_t i = 0; i < 5; ++i) {
          parts[part].push_back(x[from + i] * by);
          dx[from + i] = by * (d[row * 5 + i] - x[from + i] * by * along);
        }
      }
      for (std::size_t i = 0; i < 6; ++i) {
        parts[2].push_back(x[row * 16 + 10 + i]);
        dx[row * 16 + 10 + i] = dv[row * 6 + i];
      }
    }
    Call forward{"delta_heads", {x, dq, dk, dv}}, back{"delta_heads_grad", {dq, dk, dv, x, x}};
    forward.attrs = back.attrs = {{.i = key}, {.i = 2}, {.f = eps}};
    const std::vector<Value> got = run(set, forward);
    for (std::size_t part = 0; part < 3; ++part)
      expect_close(got[1 + part], parts[part], tolerance(type), "part " + std::to_string(part));
    expect_close(run(set, back)[4], dx, 2 * tolerance(type), "dx");
    expect_batch_free(set, forward, {0, 1, 2, 3});
    expect_batch_free(set, back, {0, 1, 2, 3, 4});
  });
}

TEST(DeltaGates, MatchTheFormula) {
  for_types([](const InstructionSet& set, DType type) {
    const DType sum = OpShape::statistics(type);
    const Value x = random_value(type, {2, 3, 2, 6}, 1, 9), rate = random_value(type, {6}, 2, 2),
                bias = random_value(type, {6}, 3, 2), dg = random_value(sum, {2, 3, 6}, 4),
                dbeta = random_value(sum, {2, 3, 6}, 5);
    std::vector<double> g, beta, dx(x.size()), drate(6), dbias(6);
    for (std::size_t i = 0; i < dg.size(); ++i) {
      const std::size_t head = i / 3, own = i % 6, share = head * 6 + i % 3, decay = share + 3;
      const double moved = x[decay] + bias[own], fast = std::exp(rate[own]), s = sigmoid(x[share]);
      g.push_back(-fast * std::log1p(std::exp(moved)));
      beta.push_back(s);
      dx[share] = dbeta[i] * s * (1 - s);
      dx[decay] = -dg[i] * fast * sigmoid(moved);
      drate[own] += dg[i] * g.back();
      dbias[own] += dx[decay];
    }
    const Call forward{"delta_gates", {x, rate, bias, dg, dg}},
        back{"delta_gates_input_grad", {dg, dbeta, x, rate, bias, x}},
        sums{"delta_gates_weight_grad", {dg, x, rate, bias, Value(sum, {6}), Value(sum, {6})}};
    const std::vector<Value> got = run(set, forward);
    expect_close(got[3], g, tolerance(sum), "g");
    expect_close(got[4], beta, tolerance(sum), "beta");
    expect_close(run(set, back)[5], dx, tolerance(type), "dx");
    const std::vector<Value> added = run(set, sums);
    expect_close(added[4], drate, 4 * tolerance(sum), "drate");
    expect_close(added[5], dbias, 4 * tolerance(sum), "dbias");
    expect_begins(set, sums, {4, 5});
    expect_batch_free(set, forward, {0, 3, 4});
    expect_batch_free(set, back, {0, 1, 2, 5});
    expect_batch_free(set, sums, {0, 1});
  });
}

}  // namespace
}  // namespace prun::test::delta_heads_test
