// Gives the declarations of a part of a segment names of their own, so that a segment may have several alike
// parts: the block of "mtp1" has its "mtp1.qkv.weight".
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "prun/foreign.hpp"
#include "prun/model.hpp"

namespace prun {

// ------------------------------------------------------------------- part

class SegmentPart : public Segment {
 public:
  // This part is the whole segment. Its weights start from normal numbers with this deviation.
  SegmentPart(const Segment& all, double deviation) : Segment(all), deviation_(deviation) {}
  SegmentPart(const SegmentPart& of, const std::string& name)
      : Segment(of), prefix_(name + "."), deviation_(of.deviation_) {}

  Id weight(std::string_view name, const std::vector<Dim>& dims) const {
    return Segment::weight(called(name), dims, normal(deviation_));
  }
  Id vector(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return Segment::vector(called(name), dims, init);
  }
  Id untrained(std::string_view name, std::initializer_list<Dim> dims) const {
    const std::string whole = called(name);
    return state({.name = whole, .dims = {dims.begin(), dims.size()}});
  }
  Id tally(std::string_view name, std::initializer_list<Dim> dims) const {
    return Segment::tally(called(name), dims);
  }

 private:
  std::string called(std::string_view name) const { return prefix_ + std::string(name); }

  std::string prefix_;
  double deviation_;
};

// ------------------------------------------------------------------- layer weights
// Lists where the parameters of layers that are alike are stored in the files of Hugging Face's libraries.

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
