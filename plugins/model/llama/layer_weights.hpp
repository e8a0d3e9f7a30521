// Lists where the parameters of layers that are alike are stored in the files of Hugging Face's libraries.
#pragma once

#include <string>
#include <utility>

#include "prun/foreign.hpp"

namespace prun {

class LayerWeights {
 public:
  // `first_layer` is the number of the first of these layers in the files.
  LayerWeights(ForeignWeights& weights, std::string segment, std::int64_t first_layer)
      : weights_(weights), segment_(std::move(segment)), first_layer_(first_layer) {}

  void add(const std::string& parameter, const std::string& name, const char* dims = "",
           const char* part = "", std::int64_t begin = 0, std::int64_t end = 0,
           const ForeignTensor::Part& also = {}) const {
    weights_.tensors.push_back(
        {segment_ + "." + parameter, "model.layers.*." + name, dims, part, begin, end, first_layer_, also});
  }

 private:
  ForeignWeights& weights_;
  std::string segment_;
  std::int64_t first_layer_;
};

}  // namespace prun
