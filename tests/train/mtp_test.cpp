// Multi-token prediction beside loops that say what it is: losses and gradients of the whole model, of
// sequences and of documents; and that what does not train knows nothing of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"
#include "train/loop/trainer.hpp"

namespace prun::test::mtp_test {
namespace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;  // by position

constexpr int seq = 12, vocab = 17, hidden = 8, heads = 4, groups = 2, head_dim = 4, ffn = 6, depth = 2;
constexpr double weight_of_further = 0.3;
constexpr std::int32_t end_of_text = 5;
// Documents of 4, 1 and 8 tokens.
const std::vector<std::int32_t> text = {3, 11, 16, 5, 5, 2, 9, 0, 14, 9, 1, 7, 12};

std::vector<std::string> sets_of(const std::string& documents, const std::vector<std::string>& more = {}) {
  return with({"model.plugin=llama",
               "model.layers=1",
               "model.seq=12",
               "model.vocab=17",
               "model.hidden=8",
               "model.heads=4",
               "model.kv_heads=2",
               "model.head_dim=4",
               "model.ffn=6",
               "model.rope_base=100",
               "model.mtp_layers=2",
               "data.end_of_text=5",
               "data.mask_documents=" + documents,
               "batch.global=1",
               "batch.micro=1",
               "optimizer.plugin=sgd",
               "optimizer.clip=0",
               "optimizer.lr=0.5",
               "precision.compute=fp64",
               "precision.state=fp64"},
              more);
}

// ---------------------------------------------------------------- what it is, in loops

// Elements by name: "head.mtp1.norm.gain".
using Weights = std::map<std::string, Row>;

Row times(const Row& weight, const Row& x) {
  Row y(weight.size() / x.size());
  for (std::size_t o = 0; o < y.size(); ++o)
    for (std::size_t i = 0; i < x.size(); ++i) y[o] += weight[o * x.size() + i] * x[i];
  return y;
}

Row normed(const Row& x, const Row& gain) {
  double squares = 0;
  for (const double e : x) squares += e * e;
  Row y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i)
    y[i] = x[i] / std::sqrt(squares / static_cast<double>(x.size()) + 1e-5) * gain[i];
  return y;
}

Row turned(Row x, int position) {
  for (int i = 0; i < head_dim / 2; ++i) {
    const double angle = position * std::pow(100, -2.0 * i / head_dim), a = x[i], b = x[i + head_dim / 2];
    x[i] = a * std::cos(angle) - b * std::sin(angle);
    x[i + head_dim / 2] = b * std::cos(angle) + a * std::sin(angle);
  }
  return x;
}

class InLoops {
 public:
  InLoops(const Weights& weights, const std::string& documents) : weights_(weights) {
    int start = 0;
    for (int i = 0; i < seq; ++i) {
      const bool ends = documents == "true" && text[i] == end_of_text;
      starts_.push_back(start);
      targets_.push_back(ends ? -1 : text[i + 1]);
      if (ends) start = i + 1;
    }
  }

  // Sums over targets: of the model, and of each module.
  Row losses() const {
    Rows x;
    for (int i = 0; i < seq; ++i) x.push_back(embedded(text[i]));
    x = block(x, "block.");
    for (Row& row : x) row = normed(row, of("head.norm.gain"));
    Row sums = {loss(x, 0)};
    for (int k = 1; k <= depth; ++k) {
      const std::string name = "head.mtp" + std::to_string(k) + ".";
      for (int i = 0; i < seq; ++i) {
        Row both = normed(embedded(is_there(i, k) ? text[i + k] : 0), of(name + "norm_token.gain"));
        const Row made = normed(x[i], of(name + "norm_made.gain"));
        both.insert(both.end(), made.begin(), made.end());
        x[i] = times(of(name + "joined.weight"), both);
      }
      x = block(x, name);
      for (Row& row : x) row = normed(row, of(name + "norm.gain"));
      sums.push_back(loss(x, k));
    }
    return sums;
  }

  int targets() const {
    int count = 0;
    for (const int target : targets_) count += target >= 0;
    return count;
  }
  // What is minimized.
  double objective() const {
    const Row sums = losses();
    double further = 0;
    for (int k = 1; k <= depth; ++k) further += sums[k];
    return (sums[0] + weight_of_further / depth * further) / targets();
  }

 private:
  const Row& of(const std::string& name) const { return weights_.at(name); }
  bool is_there(int i, int ahead) const { return i + ahead < seq && starts_[i + ahead] == starts_[i]; }

  Row embedded(int token) const {
    const Row& table = of("embedding.token");
    return {table.begin() + token * hidden, table.begin() + (token + 1) * hidden};
  }

  Rows block(const Rows& x, const std::string& name) const {
    constexpr int packed = heads / groups + 2;
    Rows projected, y = x;
    for (const Row& row : x)
      projected.push_back(times(of(name + "qkv.weight"), normed(row, of(name + "norm1.gain"))));
    const auto part = [&](int i, int group, int slot) {
      const auto at = projected[i].begin() + (group * packed + slot) * head_dim;
      const Row found(at, at + head_dim);
      return slot == packed - 1 ? found : turned(found, i);
    };
    for (int i = 0; i < seq; ++i) {
      Row seen;
      for (int group = 0; group < groups; ++group)
        for (int slot = 0; slot < packed - 2; ++slot) {
          Row sum(head_dim);
          double shares = 0;
          for (int j = starts_[i]; j <= i; ++j) {
            const Row q = part(i, group, slot), k = part(j, group, packed - 2),
                      v = part(j, group, packed - 1);
            double score = 0;
            for (int e = 0; e < head_dim; ++e) score += q[e] * k[e] / std::sqrt(head_dim);
            shares += std::exp(score);
            for (int e = 0; e < head_dim; ++e) sum[e] += std::exp(score) * v[e];
          }
          for (const double e : sum) seen.push_back(e / shares);
        }
      const Row added = times(of(name + "proj.weight"), seen);
      for (int e = 0; e < hidden; ++e) y[i][e] += added[e];
      const Row up = times(of(name + "up.weight"), normed(y[i], of(name + "norm2.gain")));
      Row gated;
      for (int e = 0; e < ffn; ++e) gated.push_back(up[e] / (1 + std::exp(-up[e])) * up[ffn + e]);
      const Row down = times(of(name + "down.weight"), gated);
      for (int e = 0; e < hidden; ++e) y[i][e] += down[e];
    }
    return y;
  }

  double loss(const Rows& x, int ahead) const {
    double sum = 0;
    for (int i = 0; i < seq; ++i) {
      if (!is_there(i, ahead) || targets_[i + ahead] < 0) continue;
      const Row logits = times(of("head.weight"), x[i]);
      double all = 0;
      for (const double logit : logits) all += std::exp(logit);
      sum += std::log(all) - logits[targets_[i + ahead]];
    }
    return sum;
  }

  const Weights& weights_;
  std::vector<int> starts_, targets_;
};

// ---------------------------------------------------------------- beside it

class Further : public testing::TestWithParam<const char*> {
 protected:
  Recipe recipe(const std::vector<std::string>& more = {}) const {
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520, header[1] = 1, header[2] = static_cast<std::int32_t>(text.size());
    const std::vector<std::uint16_t> tokens(text.begin(), text.end());
    const std::string file = folder_.write(
        "text.bin", std::string(reinterpret_cast<const char*>(header.data()), 1024) +
                        std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()));
    return tiny_recipe(sets_of(GetParam(), with({"data.path=" + file}, more)));
  }

  static Weights weights_of(Trainer& trainer) {
    Weights weights;
    const std::vector<double> all = parameters_of(trainer);
    const Program& program = trainer.assembly().program();
    auto next = all.begin();
    trainer.assembly().each_parameter([&](Id id, std::int32_t) {
      const Value& value = program.value(id);
      weights[program.segment(value.segment).name + "." + value.name] = {next, next + value.elements()};
      next += value.elements();
    });
    EXPECT_EQ(next, all.end());
    return weights;
  }

 private:
  const TempFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Documents, Further, testing::Values("false", "true"), [](const auto& test) {
  return std::string(test.param) == "true" ? "apart" : "joined";
});

// A step of plain descent shows its gradient. Some steps before make the weights large.
TEST_P(Further, TrainsAsLoopsSay) {
  const Assembly assembly(recipe(), plugins());
  Trainer trainer(assembly, plugins());
  for (int step = 0; step < 12; ++step) trainer.step();
  Weights before = weights_of(trainer);
  const StepResult result = trainer.step();
  const Weights after = weights_of(trainer);
  const InLoops model(before, GetParam());
  const Row sums = model.losses();
  const double targets = model.targets();
  EXPECT_EQ(result.targets, model.targets());
  EXPECT_NEAR(result.loss, sums[0] / targets, 1e-12);
  ASSERT_EQ(result.tallies.size(), 2u);
  for (std::size_t k = 1; k <= depth; ++k) {
    EXPECT_EQ(result.tallies[k - 1].name, "head.mtp" + std::to_string(k) + ".loss");
    EXPECT_NEAR(result.tallies[k - 1].numbers.at(0), sums[k] / targets, 1e-12) << k;
  }
  constexpr double h = 1e-5;
  for (const auto& [name, row] : after) {
    double largest = 0;
    for (std::size_t i = 0; i < row.size(); i += 1 + row.size() / 7) {
      const double gradient = (before.at(name)[i] - row[i]) / 0.5, was = before.at(name)[i];
      double sides[2];
      for (const int side : {0, 1}) {
        before.at(name)[i] = was + (side == 1 ? h : -h);
        sides[side] = model.objective();
      }
      before.at(name)[i] = was;
      largest = std::max(largest, std::abs(gradient));
      EXPECT_NEAR(gradient, (sides[1] - sides[0]) / (2 * h), 2e-10) << name << ' ' << i;
    }
    EXPECT_GT(largest, 1e-7) << name;
  }
}

// What is trained: not everything would be of a loss that leaves modules out.
TEST_P(Further, TrainsEveryParameter) {
  const Assembly assembly(recipe(), plugins());
  Trainer trainer(assembly, plugins());
  const Weights before = weights_of(trainer);
  trainer.step();
  const Weights after = weights_of(trainer);
  EXPECT_EQ(before.size(), 29u);
  for (const auto& [name, row] : before) EXPECT_NE(after.at(name), row) << name;
}

TEST_P(Further, CountsForNothingWithoutWeight) {
  const auto step_of = [&](const std::vector<std::string>& more) {
    const Assembly assembly(recipe(more), plugins());
    Trainer trainer(assembly, plugins());
    trainer.step();
    return weights_of(trainer);
  };
  const Weights without = step_of({"model.mtp_layers=0"}), unweighted = step_of({"model.mtp_loss=0"}),
                weighted = step_of({});
  for (const auto& [name, row] : without) EXPECT_EQ(unweighted.at(name), row) << name;
  EXPECT_NE(weighted.at("embedding.token"), without.at("embedding.token"));
}

// The loss scale of fp16 reaches the modules' gradients as it does the model's.
TEST_P(Further, IsScaledWithTheLoss) {
  const auto change_of = [&](const std::vector<std::string>& more) {
    const Assembly assembly(recipe(with({"precision.state=fp32"}, more)), plugins());
    Trainer trainer(assembly, plugins());
    Row change = weights_of(trainer).at("head.mtp1.joined.weight");
    EXPECT_TRUE(trainer.step().kept);
    const Row after = weights_of(trainer).at("head.mtp1.joined.weight");
    for (std::size_t i = 0; i < change.size(); ++i) change[i] = after[i] - change[i];
    return change;
  };
  const Row exact = change_of({"precision.compute=fp32"}),
            scaled = change_of({"precision.compute=fp16", "loss_scale.initial=1024"});
  double largest = 0, difference = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    largest = std::max(largest, std::abs(exact[i]));
    difference = std::max(difference, std::abs(exact[i] - scaled[i]));
  }
  EXPECT_LT(difference, 0.05 * largest);
}

std::string refusal(const Recipe& recipe) {
  try {
    const Assembly assembly(recipe, plugins());
  } catch (const Error& error) {
    EXPECT_EQ(exit_code(error.code()), 2);
    return error.what();
  }
  return "accepted";
}

TEST_P(Further, LooksNoFurtherThanASequenceIsLong) {
  EXPECT_EQ(refusal(recipe({"model.mtp_layers=11"})), "accepted");
  EXPECT_NE(refusal(recipe({"model.mtp_layers=12"})).find("take fewer"), std::string::npos);
}

// Programs that do not train have the model's own head alone, on the same parameters.
TEST_P(Further, IsLeftOutOfWhatDoesNotTrain) {
  for (const Purpose purpose : {Purpose::evaluation, Purpose::generation}) {
    const Assembly assembly(recipe({"data.mask_documents=false"}), plugins(), 0, purpose);
    const Program& program = assembly.program();
    const Id head = program.segment_count() - 1;
    int modules = 0;
    for (const Id id : program.segment(head).ops(FunctionKind::forward)) {
      const std::string_view kind = program.op(id).kind();
      EXPECT_TRUE(kind != "ahead" && kind != "pair" && kind != "attention") << kind;
    }
    for (const Id id : program.parameters()) modules += program.value(id).name.starts_with("mtp");
    EXPECT_EQ(modules, 20);
  }
}

}  // namespace
}  // namespace prun::test::mtp_test
