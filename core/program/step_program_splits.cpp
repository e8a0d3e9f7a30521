// Implements class Program: along which axes its dimensions are split, and what of a value one rank has.
#include <algorithm>
#include <numeric>
#include <set>

#include "base/text.hpp"
#include "program/step_program.hpp"

namespace prun {

void Program::split(std::string_view dim, std::string_view axis, SplitScope scope) {
  const std::vector<AxisId> found = mesh_.all_of(axis);
  if (found.empty())
    throw_error(ErrorCode::bad_input, "the mesh has no axis '", axis, "' to split '", dim, "' over");
  check_has_dim(dim, axis);
  for (const AxisId one : found) split(dim, one, scope);
}

void Program::split(std::string_view dim, AxisId axis, SplitScope scope) {
  const Split split{Name(dim), axis, scope};
  std::vector<Split>& splits = requests_.splits;
  const auto known = std::find_if(splits.begin(), splits.end(), [&](const Split& other) {
    return other.dim == split.dim && other.axis == split.axis;
  });
  if (known == splits.end())
    splits.push_back(split);
  else
    known->scope = std::min(known->scope, scope);
}

// A program is written over a mesh that already has the axis as two, or is written once more over such a one.
void Program::split_beyond(std::string_view dim, std::string_view within, std::string_view axis,
                           SplitScope scope) {
  const std::vector<AxisId> found = mesh_.all_of(axis);
  if (found.size() == 2) {
    for (const AxisId one : found) split_for(mesh_.name(one) == axis ? dim : within, one, scope);
    return;
  }
  const std::int64_t others = ranks_that_split(dim), all = common_extent(dim),
                     left = all % others == 0 ? all / others : all;
  split(dim, axis, scope);  // refuses an unknown name
  split_for(dim, found.front(), scope);
  const std::int64_t ranks = mesh_.extent(found.front()), parts = std::gcd(left, ranks);
  if (parts < ranks && common_extent(within) % (ranks / parts) == 0)
    requests_.factored = {std::string(axis), parts, std::string(within), scope != SplitScope::ops};
}

void Program::split_for(std::string_view dim, AxisId axis, SplitScope scope) {
  split(dim, axis, scope);
  if (scope == SplitScope::ops) requests_.exchanged.push_back({Name(dim), axis, scope});
}

// The largest number of parts into which all values that have the dimension could split it.
std::int64_t Program::common_extent(std::string_view dim) const {
  std::int64_t common = 0;
  for (const Value& value : values_)
    for (const Dim& own : value.dims)
      if (own.name == Name(dim)) common = std::gcd(common, own.extent);
  return std::max<std::int64_t>(common, 1);
}

// Counts the ranks of all axes together that split it so far.
std::int64_t Program::ranks_that_split(std::string_view dim) const {
  std::int64_t ranks = 1;
  for (const Split& split : requests_.splits)
    if (split.dim == Name(dim)) ranks *= mesh_.extent(split.axis);
  return ranks;
}

void Program::check_has_dim(std::string_view dim, std::string_view axis) const {
  std::set<std::string> known;  // state lies as its parameter does
  for (const Value& value : values_)
    if (value.role != Role::state)
      for (const Dim& own : value.dims) known.emplace(own.name.view());
  if (known.count(std::string(dim)) != 0) return;
  const std::vector<std::string> names(known.begin(), known.end());
  throw_error(ErrorCode::bad_input, "no value of the program has a dimension '", dim, "' to split over '",
              axis, "'", did_you_mean(dim, names));
}

const RecipeSize* Program::recipe_size(const Dim& dim) const {
  const std::string exact = detail::concat(".", dim.name.view()),
                    ending = detail::concat("_", dim.name.view());
  for (const std::string& end : {exact, ending})
    for (const RecipeSize& size : recipe_sizes_)
      if (size.value == dim.extent && size.key.ends_with(end)) return &size;
  return nullptr;
}

std::vector<Dim> Program::local_dims(Id id) const {
  const Value& v = value(id);
  std::vector<Dim> dims = v.dims;
  for (AxisId axis = 0; axis < v.placement.size(); ++axis)
    for (Dim& dim : dims)
      if (v.placement[axis] == AxisPlacement::sharded(dim.name)) dim.extent /= mesh_.extent(axis);
  return dims;
}

std::int64_t Program::local_elements(Id id) const {
  std::int64_t n = 1;
  for (const Dim& dim : local_dims(id)) n *= dim.extent;
  return n;
}

// Axes that split the same dimension nest: an earlier axis makes the larger parts.
std::vector<std::int64_t> Program::starts(Id id, std::int64_t rank) const {
  const Value& v = value(id);
  std::vector<std::int64_t> starts(v.dims.size(), 0);
  for (std::size_t d = 0; d < v.dims.size(); ++d) {
    std::int64_t part = v.dims[d].extent;
    for (AxisId axis = 0; axis < v.placement.size(); ++axis)
      if (v.placement[axis] == AxisPlacement::sharded(v.dims[d].name)) {
        part /= mesh_.extent(axis);
        starts[d] += mesh_.coordinate(rank, axis) * part;
      }
  }
  return starts;
}

}  // namespace prun
