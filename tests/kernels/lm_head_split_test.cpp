// The LM head over parts of the vocabulary, joined by hand as the exchanges between ranks would, against
// lm_head on the whole, for every type and instruction set.
#include "tests/support/kernel_harness.hpp"

PRUN_TEST_KERNELS(all_kernels, lm_head_split_test)

namespace prun::test::lm_head_split_test {
namespace {

struct Case {
  std::int64_t batch, seq, vocab, width;
};

const std::vector<Case> cases = {{1, 1, 7, 3}, {2, 3, 11, 5}, {3, 40, 1003, 16}, {4, 9, 64, 130}};
const Case in_chunks = {2, 35, 540001, 3};  // each half: 70 rows of more than 1 MB, two chunks

constexpr double scale = 0.75, loss_before = 2.5;

DType statistics(DType type) { return OpShape::statistics(type); }

struct Problem {
  Case c;
  DType type;
  Value x, weight, targets, dweight;

  Problem(const Case& which, DType t)
      : c(which),
        type(t),
        x(Value::random(t, {c.batch, c.seq, c.width}, 1)),
        weight(Value::random(t, {c.vocab, c.width}, 2)),
        targets(DType::i32, {c.batch, c.seq}),
        dweight(Value::random(statistics(t), {c.vocab, c.width}, 3)) {
    for (std::size_t i = 0; i < targets.size(); ++i)
      targets.set(i, i % 5 == 3 ? -1.0 : static_cast<double>(i * 7919 % static_cast<std::size_t>(c.vocab)));
  }
};

struct Result {
  double loss = 0;
  std::vector<double> dx, dweight;
};

Value poisoned(DType type, std::vector<std::int64_t> dims) {
  Value value(type, std::move(dims));
  for (std::size_t i = 0; i < value.size(); ++i) value.set(i, 99);
  return value;
}

Result whole(const InstructionSet& set, const Problem& p) {
  const Value dx = poisoned(p.type, p.x.dims());
  const std::vector<Value> after = run_on(
      set, {"lm_head", {p.x, p.weight, p.targets, number(scale), number(loss_before), p.dweight, dx}}, 2);
  return {after[4][0], after[6].numbers(), after[5].numbers()};
}

// Rows [first, last) of a table.
Value rows_of(const Value& table, DType type, std::int64_t first, std::int64_t last) {
  const auto width = static_cast<std::size_t>(table.dims()[1]);
  Value part(type, {last - first, table.dims()[1]});
  for (std::size_t i = 0; i < part.size(); ++i)
    part.set(i, table[static_cast<std::size_t>(first) * width + i]);
  return part;
}

// One rank of those that share the vocabulary.
struct Part {
  std::int64_t first;
  Value weight, dweight;
  Value max, sum, hit;
};

class Split {
 public:
  Split(const InstructionSet& set, const Problem& p, std::int64_t parts) : set_(set), p_(p) {
    for (std::int64_t i = 0; i < parts; ++i) {
      const std::int64_t first = p.c.vocab * i / parts, last = p.c.vocab * (i + 1) / parts;
      parts_.push_back({first,
                        rows_of(p.weight, p.type, first, last),
                        rows_of(p.dweight, statistics(p.type), first, last),
                        {},
                        {},
                        {}});
    }
  }

  Call scan_call(const Part& part) const {
    const Value empty = poisoned(statistics(p_.type), p_.targets.dims());
    Attr vocab{};
    vocab.i = p_.c.vocab;
    return {
        "lm_head_scan", {p_.x, part.weight, p_.targets, empty, empty, empty}, {vocab}, {{1, 0, part.first}}};
  }
  void scan() {
    for (Part& part : parts_) {
      const std::vector<Value> after = run(set_, scan_call(part));
      part.max = after[3], part.sum = after[4], part.hit = after[5];
    }
    gmax = parts_[0].max;
    for (const Part& part : parts_)
      for (std::size_t i = 0; i < gmax.size(); ++i) gmax.set(i, std::max(gmax[i], part.max[i]));
  }

  void rescale() {
    scaled = hit = Value(statistics(p_.type), p_.targets.dims());
    for (const Part& part : parts_) {
      const Value empty = poisoned(statistics(p_.type), p_.targets.dims());
      const Value here = run(set_, {"lm_head_rescale", {part.max, gmax, part.sum, empty}})[3];
      for (std::size_t i = 0; i < here.size(); ++i) scaled.set(i, scaled[i] + here[i]);
      for (std::size_t i = 0; i < here.size(); ++i) hit.set(i, hit[i] + part.hit[i]);
    }
  }

  Call loss_call() const {
    const Value empty = poisoned(statistics(p_.type), p_.targets.dims());
    return {"lm_head_loss", {gmax, scaled, hit, p_.targets, number(loss_before), empty}};
  }
  Call grad_call(const Part& part, bool with_dweight = true) const {
    return {"lm_head_grad",
            {p_.x, part.weight, p_.targets, lse, number(scale), with_dweight ? part.dweight : Value(),
             poisoned(p_.type, p_.x.dims())},
            {},
            {{1, 0, part.first}}};
  }

  Result all() {
    scan();
    rescale();
    const std::vector<Value> joined = run(set_, loss_call());
    lse = joined[5];
    Result result{joined[4][0], std::vector<double>(p_.x.size()), {}};
    for (const Part& part : parts_) {
      const std::vector<Value> after = run(set_, grad_call(part));
      for (std::size_t i = 0; i < result.dx.size(); ++i) result.dx[i] += after[6][i];
      const std::vector<double> rows = after[5].numbers();
      result.dweight.insert(result.dweight.end(), rows.begin(), rows.end());
    }
    return result;
  }

  const std::vector<Part>& parts() const { return parts_; }

  Value gmax, scaled, hit, lse;

 private:
  const InstructionSet& set_;
  const Problem& p_;
  std::vector<Part> parts_;
};

void expect_near(const std::vector<double>& got, const std::vector<double>& want, double tolerance,
                 const char* what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t i = 0; i < want.size(); ++i)
    ASSERT_LE(std::abs(got[i] - want[i]), tolerance * (1 + std::abs(want[i]))) << what << "[" << i << "]";
}

// `terms`: how large the terms of a gradient are, which may cancel.
void expect_whole(const InstructionSet& set, const Problem& p, std::int64_t parts, double terms = 1) {
  SCOPED_TRACE(std::string(set.name) + " " + name_of(p.type) + " vocab " + std::to_string(p.c.vocab) +
               " in " + std::to_string(parts));
  const Result want = whole(set, p), got = Split(set, p, parts).all();
  const double exact = terms * (p.type == DType::f64 ? 1e-12 : 1e-5);
  expect_near({got.loss}, {want.loss}, exact / terms, "loss");
  const double rounded = p.type == DType::f16 ? 1e-3 : 8e-3;
  expect_near(got.dx, want.dx, size_of(p.type) == 2 ? rounded : exact, "dx");
  expect_near(got.dweight, want.dweight, exact, "dweight");
}

template <class Check>
void for_all(const Check& check) {
  for (const DType type : {DType::f64, DType::f32, DType::bf16, DType::f16})
    for (const Case& c : cases)
      for (const InstructionSet& set : all_kernels()) check(set, Problem(c, type));
}

TEST(LmHeadSplit, PartsMakeTheWhole) {
  for_all([](const InstructionSet& set, const Problem& p) {
    for (const std::int64_t parts : {1, 2, 3}) expect_whole(set, p, parts);
  });
}

TEST(LmHeadSplit, PartsMakeTheWholeInSeveralChunks) {
  const Problem p(in_chunks, DType::f32);
  for (const InstructionSet& set : all_kernels()) expect_whole(set, p, 2);
}

TEST(LmHeadSplit, EachTargetIsHitInOnePart) {
  for_all([](const InstructionSet& set, const Problem& p) {
    Split split(set, p, 3);
    split.scan();
    for (std::size_t i = 0; i < p.targets.size(); ++i) {
      const auto target = static_cast<std::int64_t>(p.targets[i]);
      int hits = 0;
      for (const Part& part : split.parts()) {
        const bool here = target >= part.first && target < part.first + part.weight.dims()[0];
        EXPECT_EQ(part.hit[i] != 0, here) << set.name << " row " << i << " part from " << part.first;
        hits += here;
      }
      EXPECT_EQ(hits, target >= 0 ? 1 : 0);
    }
  });
}

// Beside lm_head_loss: by group what it adds, and how many rows.
TEST(LmHeadSplit, GroupsArePartsOfTheLoss) {
  for_all([](const InstructionSet& set, const Problem& p) {
    Split split(set, p, 2);
    const double loss = split.all().loss - loss_before;
    constexpr std::int64_t groups = 3;
    Value of(DType::i32, p.targets.dims());
    std::vector<double> counts(groups);
    for (std::size_t i = 0; i < of.size(); ++i) {
      const std::size_t group = i % (groups + 1);  // the last is none
      of.set(i, static_cast<double>(group));
      if (p.targets[i] >= 0 && group < groups) ++counts[group];
    }
    const auto sums_by = [&](const Value& which) {
      return run(set,
                 {"lm_head_groups",
                  {split.gmax, split.scaled, split.hit, p.targets, which, Value(DType::f64, {1, groups, 2})},
                  {{.f = 0}}})[5];
    };
    const Value sums = sums_by(of);
    for (std::size_t g = 0; g < groups; ++g) EXPECT_EQ(sums[2 * g + 1], counts[g]) << g;
    const Value all = sums_by(Value(DType::i32, p.targets.dims()));
    EXPECT_NEAR(all[0], loss, 1e-12 * (1 + std::abs(loss)));
    EXPECT_EQ(all[2], 0);
  });
}

TEST(LmHeadSplit, BitsDoNotDependOnBatching) {
  const auto check = [](const InstructionSet& set, const Problem& p) {
    Split split(set, p, 2);
    split.all();
    expect_batch_free(set, split.scan_call(split.parts()[1]), {0, 2, 3, 4, 5});
    expect_batch_free(set, split.loss_call(), {0, 1, 2, 3, 5});
    expect_batch_free(set, split.grad_call(split.parts()[1], false), {0, 2, 3, 6});
  };
  for_all(check);
}

TEST(LmHeadSplit, TheFirstChunkBeginsTheWeightsGradient) {
  const auto check = [](const InstructionSet& set, const Problem& p) {
    const Value dx = poisoned(p.type, p.x.dims());
    expect_begins(set, {"lm_head", {p.x, p.weight, p.targets, number(scale), number(0), p.dweight, dx}}, {5});
    Split split(set, p, 2);
    split.all();
    expect_begins(set, split.grad_call(split.parts()[1]), {5});
  };
  for_all(check);
  for (const InstructionSet& set : all_kernels()) check(set, Problem(in_chunks, DType::f32));
}

TEST(LmHeadSplit, WithoutDweightDxIsTheSame) {
  for_all([](const InstructionSet& set, const Problem& p) {
    Split split(set, p, 2);
    split.all();
    for (const Part& part : split.parts())
      EXPECT_EQ(run(set, split.grad_call(part, false))[6].bytes(), run(set, split.grad_call(part))[6].bytes())
          << set.name << " " << name_of(p.type);
  });
}

TEST(LmHeadSplit, RowsThatDoNotCountGetNoGradient) {
  for_all([](const InstructionSet& set, Problem p) {
    for (std::size_t i = 0; i < p.targets.size(); ++i) p.targets.set(i, -100);
    const Result got = Split(set, p, 2).all();
    EXPECT_EQ(got.loss, loss_before);
    EXPECT_EQ(got.dx, std::vector<double>(p.x.size()));
    EXPECT_EQ(got.dweight, p.dweight.numbers());
  });
}

// One part's logits are so much smaller than the other's that none of its exponentials counts.
TEST(LmHeadSplit, LogitsFarApartMakeTheWhole) {
  for (const InstructionSet& set : all_kernels()) {
    Problem p({2, 3, 10, 2}, DType::f64);
    for (std::size_t i = 0; i < p.weight.size(); ++i) p.weight.set(i, i < 10 ? 900 : -900);
    for (std::size_t i = 0; i < p.x.size(); ++i) p.x.set(i, 1);
    expect_whole(set, p, 2, 900);
  }
}

TEST(LmHeadSplit, NonFiniteInputMakesTheLossNonFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const double poison : {std::nan(""), infinity, -infinity})
    for_all([=](const InstructionSet& set, Problem p) {
      p.x.set(0, poison);
      EXPECT_FALSE(std::isfinite(Split(set, p, 2).all().loss)) << set.name << " " << poison;
    });
}

TEST(LmHeadSplit, TargetBeyondTheVocabularyMakesTheLossNaN) {
  for_all([](const InstructionSet& set, Problem p) {
    p.targets.set(0, static_cast<double>(p.c.vocab));
    EXPECT_TRUE(std::isnan(Split(set, p, 2).all().loss)) << set.name << " " << name_of(p.type);
  });
}

TEST(LmHeadSplit, WorkspaceHoldsOneChunkOfLogits) {
  const Problem p({2, 512, 50304, 64}, DType::f32);
  for (const InstructionSet& set : all_kernels()) {
    const Split split(set, p, 1);
    for (Call call : {split.scan_call(split.parts()[0]), split.grad_call(split.parts()[0])}) {
      std::vector<Value*> operands;
      for (Value& operand : call.operands) operands.push_back(&operand);
      const std::vector<Attr> attrs = with_zeros(call.attrs);
      const auto bytes = find_kernel(set, call.op).workspace(shape_of(operands, attrs.data()), 2);
      EXPECT_GE(bytes, 64 * 50304 * 4) << call.op << " " << set.name;
      EXPECT_LT(bytes, 96 << 20) << call.op << " " << set.name;  // all logits would take 196 MiB
    }
  }
}

}  // namespace
}  // namespace prun::test::lm_head_split_test
