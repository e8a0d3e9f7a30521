// prun's own ops pass what is asked of a third party's.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/text.hpp"
#include "explain/builtin_examples.hpp"
#include "explain/op_places.hpp"
#include "plugin_check/op_checks.hpp"
#include "plugin_check/tiny_recipe.hpp"

namespace prun {
namespace {

class BuiltinOps : public testing::Test {
 protected:
  OpsOnTrial trial() const {
    OpsOnTrial trial{std::make_shared<OpRegistry>(), builtin_ops(), builtin_examples(),
                     with_weigh_kernels(cpu_.kernels()), [](std::string_view) {}};
    add_weigh_ops(*trial.registry);
    return trial;
  }

 private:
  const CpuKernels cpu_{{{PRUN_TEST_PLUGINS, "the build"}}};
};

TEST_F(BuiltinOps, KeepToTheirMemory) { EXPECT_TRUE(check_memory(trial()).checked); }
TEST_F(BuiltinOps, GiveTheSameBitsOnAnyThreads) { EXPECT_TRUE(check_threads(trial()).checked); }
TEST_F(BuiltinOps, AreMarkedAsTheyAre) { EXPECT_TRUE(check_marks(trial()).checked); }

TEST_F(BuiltinOps, HaveGradientsAndExamplesOfThem) {
  const CheckFinding finding = check_gradients(trial());
  EXPECT_EQ(finding.detail,
            "37 ops; not checked: 'as_context', 'as_seq', 'attention_across', 'cast', 'geglu', 'geglu_erf', "
            "'join_heads_apart', 'rope_apart', 'split_heads_apart' (no example of it)");
}

// What prun explain says of an op is read off the sources when they are built.
TEST(PlacesOfOps, AreThereAndTrue) {
  for (const OpDef& op : builtin_ops()) {
    const std::string places(places_of_op(op.kind));
    EXPECT_TRUE(places.starts_with("rule in kernels/")) << op.kind << ": " << places;
    for (std::string_view word : split(places, ' ')) {
      if (word.ends_with(',')) word.remove_suffix(1);
      if (word.find('/') == std::string_view::npos) continue;
      EXPECT_TRUE(std::filesystem::is_regular_file(std::filesystem::path(PRUN_SOURCE_DIR) / word))
          << op.kind << ": " << word;
    }
    EXPECT_EQ(places.find("CPU kernel in") == std::string::npos, op.exchange != nullptr) << op.kind << places;
  }
  EXPECT_EQ(places_of_op("squared_relu"), "");
  // An attribute or an operand of another op has the name of each of these.
  for (const auto& [kind, folder] : {std::pair("ahead", "documents"), std::pair("scale", "elementwise"),
                                     std::pair("experts", "experts"), std::pair("positions", "sequence")})
    EXPECT_NE(places_of_op(kind).find(detail::concat("CUDA launch in kernels/", folder, "/bind.cpp")),
              std::string::npos)
        << kind << ": " << places_of_op(kind);
}

}  // namespace
}  // namespace prun
