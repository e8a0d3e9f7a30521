// Gives the declarations of a part of a segment names of their own, so that a segment may have several alike
// parts: the block of "mtp1" has its "mtp1.qkv.weight".
#pragma once

#include <string>
#include <vector>

#include "prun/model.hpp"

namespace prun {

class SegmentPart : public Segment {
 public:
  // This part is the whole segment, so a function that takes a part takes a segment.
  SegmentPart(const Segment& all) : Segment(all) {}
  SegmentPart(const Segment& of, const std::string& name) : Segment(of), prefix_(name + ".") {}

  Id weight(std::string_view name, const std::vector<Dim>& dims, Init init) const {
    return Segment::weight(called(name), dims, init);
  }
  Id vector(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return Segment::vector(called(name), dims, init);
  }
  Id untrained(std::string_view name, std::initializer_list<Dim> dims, Init init) const {
    return Segment::untrained(called(name), dims, init);
  }
  Id tally(std::string_view name, std::initializer_list<Dim> dims) const {
    return Segment::tally(called(name), dims);
  }

 private:
  std::string called(std::string_view name) const { return prefix_ + std::string(name); }

  std::string prefix_;
};

}  // namespace prun
