#include "base/slice.hpp"

#include <algorithm>

namespace prun {

std::int64_t elements_of(const Extents& shape) {
  std::int64_t count = 1;
  for (const std::int64_t extent : shape) count *= extent;
  return count;
}

std::string shape_text(const Extents& shape) {
  constexpr std::size_t longest = 16;
  std::string text = "[";
  for (std::size_t i = 0; i < std::min(shape.size(), longest); ++i)
    text += (i > 0 ? "," : "") + std::to_string(shape[i]);
  return text + (shape.size() > longest ? ",...]" : "]");
}

Slice whole_slice(const Extents& shape) {
  return {shape, Extents(shape.size(), 0), shape, 0, elements_of(shape)};
}

std::vector<Stretch> stretches(const Slice& slice) {
  // Everything from the last split dimension on is consecutive.
  std::size_t inner = 0;
  for (std::size_t d = 0; d < slice.whole.size(); ++d)
    if (slice.extent[d] != slice.whole[d]) inner = d;
  std::int64_t run = 1, rows = 1;
  for (std::size_t d = inner; d < slice.whole.size(); ++d) run *= slice.extent[d];
  for (std::size_t d = 0; d < inner; ++d) rows *= slice.extent[d];
  std::vector<Stretch> list;
  const std::int64_t end = slice.first + slice.count;
  for (std::int64_t row = run == 0 ? rows : slice.first / run; row < rows && row * run < end; ++row) {
    std::int64_t index = row, at = 0, stride = 1;
    for (std::size_t d = slice.whole.size(); d-- > 0;) {
      const std::int64_t within = d >= inner ? 0 : index % slice.extent[d];
      if (d < inner) index /= slice.extent[d];
      at += (slice.start[d] + within) * stride;
      stride *= slice.whole[d];
    }
    const std::int64_t from = std::max(row * run, slice.first), to = std::min((row + 1) * run, end);
    list.push_back({from - slice.first, at + from - row * run, to - from});
  }
  return list;
}

std::int64_t whole_index(const Slice& slice, std::int64_t element) {
  for (const Stretch& run : stretches(slice))
    if (element < run.part + run.count) return run.whole + element - run.part;
  return elements_of(slice.whole);
}

}  // namespace prun
