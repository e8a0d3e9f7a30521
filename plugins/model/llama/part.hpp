// Gives the declarations of a part of a segment names of their own, so that a segment may have several alike
// parts: the block of "mtp1" has its "mtp1.qkv.weight".
#pragma once

#include <string>
#include <vector>

#include "prun/model.hpp"

namespace prun {

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

}  // namespace prun
