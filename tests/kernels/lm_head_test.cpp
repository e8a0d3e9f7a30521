// lm_head against softmax cross-entropy in double, for every type and instruction set.
#include "tests/support/kernel_call.hpp"

PRUN_TEST_KERNELS(lm_head_kernels, lm_head_test)

namespace prun::test::lm_head_test {
namespace {

using prun::DType;
using prun::test::expect_close;
using prun::test::find_kernel;
using prun::test::InstructionSet;
using prun::test::launch;
using prun::test::shape_of;
using prun::test::Value;

struct Case {
  std::int64_t batch, seq, vocab, width;
  double softcap = 0;  // bounds logits
};

const std::vector<Case> cases = {{1, 1, 7, 3},      {2, 3, 11, 5},   {1, 70, 100, 33},
                                 {3, 40, 1003, 16}, {4, 9, 64, 130}, {3, 40, 1003, 16, 0.7}};
const Case in_chunks = {2, 35, 270001, 3};  // 70 rows of more than 1 MB each: two chunks

constexpr double scale = 0.75, loss_before = 2.5;

struct Problem {
  Case c;
  DType type;
  Value x, weight, targets, factor, loss, dweight, dx;

  Problem(const Case& which, DType t)
      : c(which),
        type(t),
        x(Value::random(t, {c.batch, c.seq, c.width}, 1)),
        weight(Value::random(t, {c.vocab, c.width}, 2)),
        targets(DType::i32, {c.batch, c.seq}),
        factor(DType::f64, {}, {scale}),
        loss(DType::f64, {}, {loss_before}),
        dweight(Value::random(t == DType::f64 ? DType::f64 : DType::f32, {c.vocab, c.width}, 3)),
        dx(t, {c.batch, c.seq, c.width}) {
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets.set(i, i % 5 == 3 ? -1.0 : static_cast<double>(i * 7919 % static_cast<std::size_t>(c.vocab)));
  }
  void run(const InstructionSet& set, int threads, bool with_dweight = true) {
    Value absent;
    launch(find_kernel(set, "lm_head"),
           {&x, &weight, &targets, &factor, &loss, with_dweight ? &dweight : &absent, &dx},
           {{.f = c.softcap}}, threads);
  }
};

struct Reference {
  double loss = loss_before;
  std::vector<double> dx, dweight;
};

// The gradient of one row's loss by its logits; adds the loss.
std::vector<double> row_gradient(const Problem& p, std::size_t row, double& loss) {
  const auto vocab = static_cast<std::size_t>(p.c.vocab), width = static_cast<std::size_t>(p.c.width);
  const auto target = static_cast<std::size_t>(p.targets[row]);
  std::vector<double> logits(vocab);
  for (std::size_t j = 0; j < vocab; ++j)
    for (std::size_t d = 0; d < width; ++d) logits[j] += p.x[row * width + d] * p.weight[j * width + d];
  std::vector<double> slopes(vocab, 1);
  for (std::size_t j = 0; j < vocab && p.c.softcap > 0; ++j) {
    const double t = std::tanh(logits[j] / p.c.softcap);
    logits[j] = p.c.softcap * t, slopes[j] = 1 - t * t;
  }
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit);
  loss += std::log(sum) - logits[target];
  for (double& logit : logits) logit = std::exp(logit) / sum * scale;
  logits[target] -= scale;
  for (std::size_t j = 0; j < vocab; ++j) logits[j] *= slopes[j];
  return logits;
}

Reference reference(const Problem& p) {
  const auto vocab = static_cast<std::size_t>(p.c.vocab), width = static_cast<std::size_t>(p.c.width);
  Reference r{loss_before, std::vector<double>(p.dx.size()), p.dweight.numbers()};
  for (std::size_t row = 0; row < p.targets.size(); ++row) {
    if (p.targets[row] < 0) continue;
    const std::vector<double> gradient = row_gradient(p, row, r.loss);
    for (std::size_t j = 0; j < vocab; ++j)
      for (std::size_t d = 0; d < width; ++d) {
        r.dx[row * width + d] += gradient[j] * p.weight[j * width + d];
        r.dweight[j * width + d] += gradient[j] * p.x[row * width + d];
      }
  }
  return r;
}

std::string label(const InstructionSet& set, DType type, std::int64_t vocab, const char* what) {
  return std::string(set.name) + " " + name_of(type) + " vocab " + std::to_string(vocab) + " " + what;
}

void expect_reference(const Problem& p) {
  const Reference want = reference(p);
  const double exact = p.type == DType::f64 ? 1e-12 : 2e-5;
  for (const InstructionSet& set : all_kernels()) {
    Problem got = p;
    got.run(set, 2);
    expect_close(got.loss, {want.loss}, exact, label(set, p.type, p.c.vocab, "loss"));
    const double rounded = p.type == DType::f16 ? 1e-3 : 5e-3;
    expect_close(got.dx, want.dx, size_of(p.type) == 2 ? rounded : exact,
                 label(set, p.type, p.c.vocab, "dx"));
    expect_close(got.dweight, want.dweight, exact, label(set, p.type, p.c.vocab, "dweight"));
  }
}

template <class Check>
void for_all(const Check& check) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases)
      for (const InstructionSet& set : all_kernels()) check(set, Problem(c, type));
}

TEST(LmHead, MatchesDouble) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases) expect_reference(Problem(c, type));
}

TEST(LmHead, MatchesDoubleInSeveralChunks) { expect_reference(Problem(in_chunks, DType::f32)); }

TEST(LmHead, BitsDoNotDependOnThreads) {
  for_all([](const InstructionSet& set, const Problem& p) {
    Problem alone = p;
    alone.run(set, 1);
    for (const int threads : {2, 3}) {
      Problem many = p;
      many.run(set, threads);
      EXPECT_EQ(many.loss.bytes(), alone.loss.bytes()) << label(set, p.type, p.c.vocab, "loss");
      EXPECT_EQ(many.dx.bytes(), alone.dx.bytes()) << label(set, p.type, p.c.vocab, "dx");
      EXPECT_EQ(many.dweight.bytes(), alone.dweight.bytes()) << label(set, p.type, p.c.vocab, "dweight");
    }
  });
}

// Runs one sequence a call, the loss carried along; returns the last call's loss.
void expect_batching_unseen(const InstructionSet& set, const Problem& p) {
  Problem whole = p;
  whole.run(set, 2);
  Value loss = p.loss;
  for (std::int64_t b = 0; b < p.c.batch; ++b) {
    Problem part = p;
    part.x = p.x.slice(b), part.targets = p.targets.slice(b), part.dx = p.dx.slice(b), part.loss = loss;
    part.run(set, 2);
    loss = part.loss;
    EXPECT_EQ(part.dx.bytes(), whole.dx.slice(b).bytes()) << label(set, p.type, p.c.vocab, "dx");
  }
  EXPECT_EQ(loss.bytes(), whole.loss.bytes()) << label(set, p.type, p.c.vocab, "loss");
}

TEST(LmHead, BitsDoNotDependOnBatching) {
  for_all(expect_batching_unseen);
  for (const InstructionSet& set : all_kernels()) expect_batching_unseen(set, Problem(in_chunks, DType::f32));
}

TEST(LmHead, WithoutDweightTheRestIsTheSame) {
  for_all([](const InstructionSet& set, const Problem& p) {
    Problem with = p, without = p;
    with.run(set, 2);
    without.run(set, 2, false);
    EXPECT_EQ(without.loss.bytes(), with.loss.bytes()) << label(set, p.type, p.c.vocab, "loss");
    EXPECT_EQ(without.dx.bytes(), with.dx.bytes()) << label(set, p.type, p.c.vocab, "dx");
    EXPECT_EQ(without.dweight.bytes(), p.dweight.bytes());
  });
}

TEST(LmHead, RowsThatDoNotCountGetNoGradient) {
  for_all([](const InstructionSet& set, Problem p) {
    for (std::size_t i = 0; i < p.targets.size(); ++i) p.targets.set(i, -100);
    const Value before = p.dweight;
    p.run(set, 2);
    expect_close(p.dx, std::vector<double>(p.dx.size()), 0, label(set, p.type, p.c.vocab, "dx"));
    EXPECT_EQ(p.loss[0], loss_before);
    EXPECT_EQ(p.dweight.bytes(), before.bytes());
  });
}

TEST(LmHead, LargeLogitsStayFinite) {
  for_all([](const InstructionSet& set, Problem p) {
    for (std::size_t i = 0; i < p.x.size(); ++i) p.x.set(i, p.x[i] * 1000);
    p.run(set, 2);
    EXPECT_TRUE(std::isfinite(p.loss[0])) << label(set, p.type, p.c.vocab, "loss");
    for (std::size_t i = 0; i < p.dx.size(); ++i) ASSERT_TRUE(std::isfinite(p.dx[i]));
  });
}

TEST(LmHead, NonFiniteInputMakesTheLossNonFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double poison : {std::nan(""), infinity, -infinity})
    for_all([=](const InstructionSet& set, const Problem& p) {
      if (p.c.softcap > 0) return;  // it bounds them
      Problem in_x = p, in_weight = p;
      in_x.x.set(0, poison);
      in_x.run(set, 2);
      EXPECT_FALSE(std::isfinite(in_x.loss[0])) << label(set, p.type, p.c.vocab, "x ") << poison;
      for (std::size_t i = 0; i < in_weight.weight.size(); ++i) in_weight.weight.set(i, poison);
      in_weight.run(set, 2);
      EXPECT_FALSE(std::isfinite(in_weight.loss[0])) << label(set, p.type, p.c.vocab, "weight ") << poison;
    });
}

TEST(LmHead, TargetBeyondTheVocabularyMakesTheLossNaN) {
  for_all([](const InstructionSet& set, Problem p) {
    p.targets.set(0, static_cast<double>(p.c.vocab));
    p.run(set, 2);
    EXPECT_TRUE(std::isnan(p.loss[0])) << label(set, p.type, p.c.vocab, "loss");
  });
}

TEST(LmHead, WorkspaceHoldsOneChunkOfLogits) {
  Problem p({2, 512, 50304, 64}, DType::f32);
  Value absent;
  const std::vector<Attr> none(1);
  const auto shape = shape_of({&p.x, &p.weight, &p.targets, &p.factor, &p.loss, &absent, &p.dx}, none.data());
  for (const InstructionSet& set : all_kernels()) {
    const auto bytes = find_kernel(set, "lm_head").workspace(shape, 2);
    EXPECT_GE(bytes, 64 * 50304 * 4) << set.name;
    EXPECT_LT(bytes, 96 << 20) << set.name;  // all logits would take 196 MiB
  }
}

}  // namespace
}  // namespace prun::test::lm_head_test
