#include "hugging_face/exported_weights.hpp"

#include <algorithm>

#include "base/floats.hpp"
#include "huggingface/runs.hpp"
#include "program/passes.hpp"

namespace prun {
namespace {

Extents extents_of(const Value& value) {
  Extents shape;
  for (const Dim& dim : value.dims) shape.push_back(dim.extent);
  return shape;
}

std::vector<float> floats_of(const CheckpointFiles& files, const TensorSlice& slice) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(slice.bytes()));
  files.read(slice, bytes);
  std::vector<float> numbers(static_cast<std::size_t>(slice.slice.count));
  load_floats(slice.type, bytes, numbers);
  return numbers;
}

}  // namespace

std::vector<float> ExportedWeights::read(Id parameter, std::int64_t layer, const std::string& source,
                                         const Slice& box) {
  if (!program_.value(parameter).in_base && !is_changed(parameter)) {
    const CheckpointFiles::Tensor& kept = files_.tensor(source);
    return floats_of(files_, {source, kept.type, {kept.shape, box.start, box.extent, 0, box.count}});
  }
  if (kept_ != parameter || kept_layer_ != layer) keep(parameter, layer, source);
  const Extents shape = extents_of(program_.value(parameter));
  std::vector<float> numbers;
  numbers.reserve(static_cast<std::size_t>(box.count));
  each_run(box.extent, 0, box.count, [&](const Extents& index, std::int64_t count) {
    std::int64_t at = 0;
    for (std::size_t d = 0; d < shape.size(); ++d) at = at * shape[d] + box.start[d] + index[d];
    const auto from = numbers_.begin() + at;
    numbers.insert(numbers.end(), from, from + count);
  });
  return numbers;
}

bool ExportedWeights::is_changed(Id parameter) const {
  const std::vector<LowRankChange>& changes = program_.low_ranks();
  return std::any_of(changes.begin(), changes.end(),
                     [&](const LowRankChange& change) { return change.weight == parameter; });
}

void ExportedWeights::keep(Id parameter, std::int64_t layer, const std::string& source) {
  numbers_ = whole(parameter, layer, source);
  kept_ = parameter;
  kept_layer_ = layer;
  for (const LowRankChange& change : program_.low_ranks())
    if (change.weight == parameter) add(change, layer);
}

std::vector<float> ExportedWeights::whole(Id parameter, std::int64_t layer, const std::string& source) const {
  if (program_.value(parameter).in_base) {
    std::vector<float> numbers(static_cast<std::size_t>(program_.value(parameter).elements()));
    base_->read(parameter, layer, 0, numbers);
    return numbers;
  }
  const CheckpointFiles::Tensor& kept = files_.tensor(source);
  return floats_of(files_, {source, kept.type, whole_slice(kept.shape)});
}

std::vector<float> ExportedWeights::trained(Id parameter, std::int64_t layer) const {
  return whole(parameter, layer, weights_of(files_, full_name(program_, parameter, layer), which_));
}

// Computes numbers += factor * up * down, of which `up` may have a stretch of one dimension only.
void ExportedWeights::add(const LowRankChange& change, std::int64_t layer) {
  const Extents shape = extents_of(program_.value(change.weight));
  const std::size_t out = shape.size() - change.in_dims;
  const std::vector<float> down = trained(change.down, layer), up = trained(change.up, layer);
  const std::int64_t rank = program_.value(change.down).dims.front().extent,
                     width = static_cast<std::int64_t>(down.size()) / rank;
  Extents rows = extents_of(program_.value(change.up));
  rows.pop_back();
  for (std::int64_t r = 0; r < elements_of(rows); ++r) {
    std::int64_t at = 0, left = r, stride = 1;  // are of the row in the weight, the last dimension first
    for (std::size_t d = out; d-- > 0; left /= rows[d], stride *= shape[d])
      at += (left % rows[d] + (d == change.part ? change.begin : 0)) * stride;
    std::vector<double> sums(static_cast<std::size_t>(width), 0);
    for (std::int64_t k = 0; k < rank; ++k) {
      const double by = change.factor * static_cast<double>(up[static_cast<std::size_t>(r * rank + k)]);
      const float* const from = down.data() + k * width;
      for (std::int64_t i = 0; i < width; ++i)
        sums[static_cast<std::size_t>(i)] += by * static_cast<double>(from[i]);
    }
    float* const to = numbers_.data() + at * width;
    for (std::int64_t i = 0; i < width; ++i)
      to[i] = static_cast<float>(static_cast<double>(to[i]) + sums[static_cast<std::size_t>(i)]);
  }
}

}  // namespace prun
