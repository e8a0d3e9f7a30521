// What a plugin lists of Hugging Face weights is held against its parameters.
#include "huggingface/map.hpp"

#include <gtest/gtest.h>

#include "program/passes.hpp"
#include "prun/plugin.hpp"
#include "support/fake_options.hpp"
#include "support/hugging_face.hpp"

namespace prun::test::map_test {
namespace {

ForeignWeights listed;  // by the model below

class Lister : public Model {
 public:
  explicit Lister(const Options&) {}
  void build(const ModelContext&, ProgramRef program) override {
    const Dim a{"a", 4}, b{"b", 3}, c{"c", 5};
    program.segment("block", 2).weight("w", {a, b, c}, zeros());
  }
  ForeignWeights foreign_weights() const override { return listed; }
};

struct Mapped {
  Id parameter;
  HuggingFaceMap map;
};

Mapped map_of(ForeignWeights weights) {
  listed = std::move(weights);
  FakeOptions options{};
  ModelAdapter<Lister> model(options.options());
  Program program(std::make_shared<OpRegistry>(), Precision{}, ModelContext{1, 1});
  raise(static_cast<ModelInterface&>(model).build({1, 1}, &program_api(), &program));
  return {program.parameters().front(), HuggingFaceMap(program, model)};
}

std::string problem(std::vector<ForeignTensor> tensors) {
  try {
    map_of({{}, std::move(tensors), {}});
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(HuggingFaceMap, KnowsShapeAndStridesOfEachPiece) {
  const auto [parameter, map] = map_of(
      {{"x.", "", "y."},
       {{"block.w", "x.h.*.first", "c, b a", "b", 0, 1}, {"block.w", "x.h.*.rest", "a b, c", "b", 1, 3, 7}},
       {"*.bias"}});
  const std::vector<HuggingFacePiece>& pieces = map.pieces(parameter);
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].shape, (Extents{5, 4}));
  EXPECT_EQ(pieces[0].strides(), (Extents{1, 4, 4}));
  EXPECT_EQ(pieces[0].name_of(1), "x.h.1.first");
  EXPECT_EQ(pieces[1].shape, (Extents{8, 5}));
  EXPECT_EQ(pieces[1].strides(), (Extents{10, 5, 1}));
  EXPECT_EQ(pieces[1].name_of(1), "x.h.8.rest");
  EXPECT_EQ(map.spellings("x.h.1.first"), (std::vector<std::string>{"x.h.1.first", "h.1.first", "y.h.1.first",
                                                                    "language_model.x.h.1.first"}));
  EXPECT_EQ(map.spellings("lm_head"), (std::vector<std::string>{"lm_head", "language_model.lm_head"}));
  EXPECT_EQ(map.spellings("model.norm"), (std::vector<std::string>{"model.norm", "language_model.model.norm",
                                                                   "model.language_model.norm"}));
  EXPECT_TRUE(map.ignores("h.0.bias"));
  EXPECT_FALSE(map.ignores("h.0.weight"));
}

TEST(HuggingFaceMap, RefusesListsThatDoNotFit) {
  const auto expect = [](const std::string& said, const char* part) {
    EXPECT_NE(said.find(part), std::string::npos) << said;
  };
  EXPECT_EQ(problem({{"block.w", "w"}}), "accepted");
  expect(problem({}), "parameter 'block.w' give only some of its elements");
  expect(problem({{"block.w", "w", "", "b", 0, 2}}), "give only some of its elements");
  expect(problem({{"block.w", "v"}, {"block.w", "w"}}), "give some of its elements twice");
  expect(problem({{"block.w", "v", "", "b", 0, 2}, {"block.w", "w", "", "b", 1, 2}}),
         "some of its elements twice");
  expect(problem({{"block.w", "w", "a, b, d"}}),
         "tensor 'w' for parameter 'block.w', which has no dimension 'd'");
  expect(problem({{"block.w", "w", "a, b a"}}), "dimension 'a' stands twice");
  expect(problem({{"block.w", "w", "a, b"}}), "not all dimensions stand");
  expect(problem({{"block.w", "w", "", "b", 1, 4}}), "elements 1 to 4 of dimension 'b', which has 3");
}

}  // namespace
}  // namespace prun::test::map_test
