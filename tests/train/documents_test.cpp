// Documents kept apart: what lies before a document changes nothing of its loss, in no layout.
#include <gtest/gtest.h>

#include <cmath>

#include "support/assembly_fixture.hpp"
#include "support/layouts.hpp"
#include "support/temp_folder.hpp"

namespace prun::test::documents_test {
namespace {

constexpr std::int32_t end_of_text = 7;
const std::vector<std::string> apart = {"precision.compute=fp64", "precision.state=fp64",
                                        "data.mask_documents=true", "data.end_of_text=7"};

std::vector<double> losses(const std::vector<std::string>& sets, const std::string& text, int steps) {
  return run_ranks(tiny_recipe(sets, text), steps)[0];
}

TEST(Documents, EveryLayoutKeepsThemApartAsOneRankDoes) {
  constexpr int steps = 3;
  std::vector<std::string> sets = with(on_cpu().sets, apart);
  sets.push_back("optimizer.clip=0");
  const std::vector<double> one = losses(sets, "", steps);
  EXPECT_NE(losses(with(sets, {"data.mask_documents=false"}), "", steps)[0], one[0]);
  std::vector<Layout> all = layouts();
  all.push_back(
      {"sequence", "[mesh]\nsp = 2\n[[strategy]]\nplugin = 'spread'\naxis = 'sp'\ndims = ['seq']\n", {}});
  for (const Layout& layout : all) {
    const std::string name = layout.name;
    if (name == "one" || name == "bf16" || name == "formats") continue;
    if (name == "zero3" || name == "coded") continue;  // they drop out and round, which one rank does not
    const std::vector<double> other = losses(with(sets, layout.sets), layout.text, steps);
    for (int i = 0; i < steps; ++i)
      EXPECT_NEAR(other[static_cast<std::size_t>(i)], one[static_cast<std::size_t>(i)], 1e-9) << name;
  }
}

// Loss of a sample of two documents, each of eight tokens.
class TwoDocuments : public testing::Test {
 protected:
  double loss(std::int32_t first, std::int32_t second, const char* documents, const char* model) const {
    std::vector<std::int32_t> header(256, 0);
    header[0] = 20240520, header[1] = 1, header[2] = 17;
    std::vector<std::uint16_t> tokens;
    for (const std::int32_t seed : {first, second}) {
      for (int i = 0; i < 7; ++i)
        tokens.push_back(static_cast<std::uint16_t>(8 + (seed * 31 + i * i * seed + i) % 50));
      tokens.push_back(end_of_text);
    }
    tokens.push_back(9);
    const std::string file = folder_.write(
        "two.bin", std::string(reinterpret_cast<const char*>(header.data()), 1024) +
                       std::string(reinterpret_cast<const char*>(tokens.data()), 2 * tokens.size()));
    std::vector<std::string> sets =
        with(apart, {std::string("data.mask_documents=") + documents, "data.path=" + file, "batch.global=1",
                     "batch.micro=1", std::string("model.plugin=") + model});
    const Assembly assembly(tiny_recipe(sets), plugins());
    Trainer trainer(assembly, plugins());
    return trainer.step().loss;
  }
  // How much the first document matters to what the second one costs.
  double influence(const char* documents, const char* model) const {
    const auto difference = [&](std::int32_t first) {
      return loss(first, 3, documents, model) - loss(first, 4, documents, model);
    };
    return std::abs(difference(1) - difference(2));
  }

  const TempFolder folder_;
};

TEST_F(TwoDocuments, TheFirstDoesNotMatterToTheSecond) {
  for (const char* model : {"gpt", "llama"}) {
    EXPECT_LT(influence("true", model), 1e-14) << model;
    EXPECT_GT(influence("false", model), 1e-8) << model;
  }
}

std::string refusal(const std::vector<std::string>& sets) {
  try {
    const Assembly assembly(tiny_recipe(sets), plugins());
    Trainer(assembly, plugins());
  } catch (const Error& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(Documents, WhatCannotTellThemApartIsRefused) {
  const auto says = [](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  says(refusal({"data.mask_documents=true"}), "set data.end_of_text to its number");
  says(refusal({"data.mask_documents=true", "data.end_of_text=64"}),
       "data.end_of_text = 64 is outside of model.vocab = 64");
  EXPECT_EQ(refusal({"data.end_of_text=64"}), "(no error)");
}

}  // namespace
}  // namespace prun::test::documents_test
