// Maps where a model's parameters are stored in directories that others wrote: what its plugin lists
// (prun/foreign.hpp) is checked against the parameters of its program.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/slice.hpp"
#include "program/step_program.hpp"

namespace prun {

// Describes a tensor there, or part of its first dimension: it is a box of a parameter, whose dimensions have
// another order.
struct HuggingFacePiece {
  std::string name;  // * stands for the layer
  std::int64_t first_layer = 0;
  Extents shape;                   // shape of the whole tensor, as its file states it
  std::int64_t row = 0;            // begin of the box in the tensor's first dimension
  Extents start, extent;           // box, by dimension of the parameter
  std::vector<std::size_t> order;  // the parameter's dimensions in their order there, the slowest first

  std::string name_of(std::int64_t layer) const;
  // Returns the distance there between elements that follow each other along a dimension of the parameter.
  Extents strides() const;
  // Returns the number of the tensor's elements before the box.
  std::int64_t offset() const { return row * (elements_of(shape) / shape.front()); }
};

class HuggingFaceMap {
 public:
  // Throws if the plugin's list does not give every element of each parameter once. The list need not have
  // what a strategy has added.
  HuggingFaceMap(const Program& program, ModelInterface& model);
  // Maps the parameters that a list names, and no others. The list is checked as a model's is.
  HuggingFaceMap(const Program& program, const ForeignWeights& listed);

  bool has(Id parameter) const { return pieces_.count(parameter) != 0; }
  const std::vector<HuggingFacePiece>& pieces(Id parameter) const { return pieces_.at(parameter); }
  // Returns the names that a tensor may have, the first of them preferred.
  std::vector<std::string> spellings(const std::string& name) const;
  // Says whether a tensor is not part of the model.
  bool ignores(std::string_view name) const;
  // Tensors that may be there as well, and those whose numbers they must have.
  const std::vector<std::pair<std::string, std::string>>& copies() const { return copies_; }

 private:
  void read(const Program& program, const ForeignWeightsView& view, bool all);

  std::map<Id, std::vector<HuggingFacePiece>> pieces_;
  std::vector<std::string> prefixes_, ignored_;
  std::vector<std::pair<std::string, std::string>> copies_;
};

}  // namespace prun
