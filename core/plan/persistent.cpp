#include "plan/persistent.hpp"

#include <algorithm>
#include <map>
#include <set>

#include "program/passes.hpp"

namespace prun {
namespace {

// A tensor and the value that has elements of it.
struct Persistent {
  std::string name;
  Id tensor = none;  // value with the tensor's dimensions; for a bucket, the parameter
  Id value = none;
  std::int32_t instance = 0;
  Id rounded = none;
  bool copy = false, moment = false;
  Id parameter = none;       // parameter that it belongs to, if any
  std::string of_parameter;  // its name
};

// Calls body(Persistent) for all that outlives a step on the rank with these instances.
template <class Body>
class Lister {
 public:
  Lister(const Program& program, const Body& body) : program_(program), body_(body) {}

  void list(const std::vector<Instance>& instances) {
    for (std::size_t i = 0; i < instances.size(); ++i) {
      if (instances[i].is_stub()) continue;
      instance_ = static_cast<std::int32_t>(i);
      layer_ = instances[i].layer;
      delay_ = instances[i].delay;
      const std::vector<Id>& values = program_.segment(instances[i].segment).values;
      for (const Id id : values)
        if (program_.value(id).role == Role::parameter && !program_.value(id).in_base) list_parameter(id);
      for (const Id id : values)
        if (const Value& value = program_.value(id);
            value.role == Role::state && value.bucket < 0 && !value.carried)
          if (!owned_.contains(id)) {
            parameter_ = none, of_parameter_.clear();
            const Id named = value.stands_for != none ? value.stands_for : id;
            const bool copy = value.copy_of != none || program_.value(named).copy_of != none;
            add(full_name(program_, named, layer_), id, id, none, copy, false);
          }
      owned_.clear();
    }
  }

 private:
  void list_parameter(Id id) {
    const Value& parameter = program_.value(parameter_ = id);
    const Bucket* bucket = bucket_of(parameter);
    const bool in_parts = bucket && gathers_parameters(program_, *bucket);
    const bool copy = parameter.copy_of != none;
    const std::string name = of_parameter_ = full_name(program_, id, layer_);
    add(name, id, in_parts ? bucket->own_parameters : id, none, copy, false);
    const std::string packed = bucket ? detail::concat("bucket.", parameter.bucket) : "";
    const auto add_state = [&](Id state, Id rounded, bool moment) {
      const Value& value = program_.value(state);
      const bool in_bucket = value.bucket >= 0;
      const std::string& prefix = in_bucket ? packed : parameter.name;
      add(name + value.name.substr(prefix.size()), in_bucket ? id : state, state, rounded, copy, moment);
      owned_.insert(state);
    };
    for (const Id before : parameter.before) {
      const std::string& older = program_.value(before).name;
      if (program_.value(before).age <= delay_)
        add(name + older.substr(parameter.name.size()), before, before, none, copy, false);
      owned_.insert(before);
    }
    const Id master = bucket ? bucket->master : parameter.master;
    const bool half = master != none && program_.value(master).dtype == DType::u16;
    if (master != none) add_state(master, half ? (bucket ? bucket->own_parameters : id) : none, false);
    if (bucket)
      for (const Id state : bucket->states) add_state(state, none, true);
    for (const Id state : parameter.states) add_state(state, none, true);
    for (std::size_t i = 0; i < parameter.scales.size(); ++i) {
      const Id scale = parameter.scales[i];
      if (scale == none) continue;
      add(name + program_.value(scale).name.substr(parameter.name.size()), scale,
          bucket ? bucket->scales.at(i) : scale, none, copy, true);
      owned_.insert(scale);
      if (bucket) owned_.insert(bucket->scales[i]);
    }
  }

  const Bucket* bucket_of(const Value& parameter) const {
    if (parameter.bucket < 0) return nullptr;
    return &program_.buckets()[parameter.bucket];
  }
  void add(std::string name, Id tensor, Id value, Id rounded, bool copy, bool moment) {
    if (parameter_ != none && program_.value(parameter_).stand_in != none) name += trained_suffix;
    body_(Persistent{std::move(name), tensor, value, instance_, rounded, copy, moment, parameter_,
                     of_parameter_});
  }

  const Program& program_;
  const Body& body_;
  std::set<Id> owned_;   // states of parameters
  Id parameter_ = none;  // parameter whose tensors are listed
  std::string of_parameter_;
  std::int32_t instance_ = 0;
  std::int64_t layer_ = 0;
  std::int32_t delay_ = 0;
};

DType type_of(const Program& program, const Persistent& persistent) {
  return persistent.rounded != none ? DType::f32 : program.value(persistent.value).dtype;
}

// Returns it with a row for each rank if ranks have different values.
Extents shape_of(const Program& program, const Value& value) {
  Extents shape;
  if (value.is_apart()) shape.push_back(program.mesh().extent(axes_apart(value)));
  for (const Dim& dim : value.tensor_dims()) shape.push_back(dim.extent);
  return shape;
}

// Returns a rank's part; for a value that varies, the rank's row.
Slice row_of(const Program& program, Id value, std::int64_t rank) {
  const Value& of = program.value(value);
  Slice slice = slice_of(program, value, rank);
  if (!of.is_apart()) return slice;
  slice.whole = shape_of(program, of);
  slice.start.insert(slice.start.begin(), program.mesh().coordinate(rank, axes_apart(of)));
  slice.extent.insert(slice.extent.begin(), 1);
  return slice;
}

HeldSlice held_slice(const Program& program, std::int64_t rank, const Persistent& persistent) {
  HeldSlice held{{persistent.name, type_of(program, persistent), row_of(program, persistent.tensor, rank)},
                 persistent.value,
                 persistent.instance,
                 0,
                 persistent.rounded,
                 persistent.copy,
                 persistent.moment,
                 persistent.parameter};
  if (persistent.value == persistent.tensor) return held;
  const auto number = static_cast<std::size_t>(program.value(persistent.value).bucket);
  const BucketCut cut = cut_of(program, program.buckets()[number], persistent.parameter, rank);
  const std::int64_t block = program.value(persistent.value).block;
  held.slice.first = cut.first / block;
  held.slice.count = cut.count / block;
  held.at = cut.at / block;
  return held;
}

// Ranks that have the same elements of a tensor, which one saves, or each a part.
class Shares {
 public:
  Shares(const Program& program, const InstancesOf& instances_of, std::int64_t rank)
      : program_(program), instances_of_(instances_of), rank_(rank), load_(program.mesh().world()) {}

  std::vector<HeldSlice> list() {
    std::map<std::pair<std::string, Slice>, std::vector<std::int64_t>> holders;
    std::map<std::pair<std::string, Slice>, HeldSlice> mine;
    for (std::int64_t rank = 0; rank < program_.mesh().world(); ++rank)
      for (HeldSlice& held : held_slices(program_, instances_of_(rank), rank)) {
        if (held.copy || held.slice.count == 0) continue;
        const auto key = std::pair(held.tensor, held.slice);
        holders[key].push_back(rank);
        if (rank == rank_) mine.emplace(key, std::move(held));
      }
    std::vector<HeldSlice> saved;
    for (const auto& [key, ranks] : holders) share(key.second, ranks, mine.find(key), mine.end(), saved);
    return saved;
  }

 private:
  using Mine = std::map<std::pair<std::string, Slice>, HeldSlice>::iterator;

  void share(const Slice& slice, const std::vector<std::int64_t>& ranks, Mine own, Mine nobody,
             std::vector<HeldSlice>& saved) {
    const auto size = static_cast<std::int64_t>(ranks.size());
    const bool in_parts = slice.count >= size * least_elements;
    const std::int64_t saver = in_parts ? -1 : least_loaded(ranks);
    if (!in_parts) load_[saver] += slice.count;
    if (own == nobody || (!in_parts && saver != rank_)) return;
    if (in_parts) {
      const std::int64_t number = std::find(ranks.begin(), ranks.end(), rank_) - ranks.begin();
      const std::int64_t first = slice.count * number / size;
      own->second.slice.first += first;
      own->second.slice.count = slice.count * (number + 1) / size - first;
      own->second.at += first;
    }
    saved.push_back(std::move(own->second));
  }

  std::int64_t least_loaded(const std::vector<std::int64_t>& ranks) const {
    return *std::min_element(ranks.begin(), ranks.end(),
                             [&](std::int64_t a, std::int64_t b) { return load_[a] < load_[b]; });
  }

  static constexpr std::int64_t least_elements = 1 << 16;  // least worth dividing

  const Program& program_;
  const InstancesOf& instances_of_;
  const std::int64_t rank_;
  Numbered<std::int64_t> load_;  // of each rank
};

}  // namespace

AxisId axes_apart(const Value& value) {
  std::vector<AxisId> axes;
  for (AxisId axis = 0; axis < value.placement.size(); ++axis)
    if (value.on(axis).is_partial() || value.on(axis).is_varying()) axes.push_back(axis);
  return folded(axes);
}

Slice slice_of(const Program& program, Id value, std::int64_t rank) {
  const Value& of = program.value(value);
  Slice slice{{}, program.starts(value, rank), {}, 0, program.local_elements(value)};
  for (const Dim& dim : of.tensor_dims()) slice.whole.push_back(dim.extent);
  for (const Dim& dim : program.local_dims(value)) slice.extent.push_back(dim.extent);
  if (of.part) slice.start[of.part->dim] += of.part->begin;
  return slice;
}

BucketCut cut_of(const Program& program, const Bucket& bucket, Id parameter, std::int64_t rank) {
  const auto member = static_cast<std::size_t>(
      std::find(bucket.parameters.begin(), bucket.parameters.end(), parameter) - bucket.parameters.begin());
  const std::int64_t size = bucket.elements / program.mesh().extent(bucket.axis),
                     part = program.mesh().coordinate(rank, bucket.axis) * size,
                     offset = bucket.offsets[member];
  const std::int64_t begin = std::max(part, offset),
                     end = std::min(part + size, offset + program.local_elements(parameter));
  if (begin >= end) return {};
  return {begin - offset, begin - part, end - begin};
}

std::vector<HeldSlice> held_slices(const Program& program, const std::vector<Instance>& instances,
                                   std::int64_t rank) {
  std::vector<HeldSlice> list;
  const auto add = [&](const Persistent& persistent) {
    list.push_back(held_slice(program, rank, persistent));
  };
  Lister(program, add).list(instances);
  return list;
}

std::vector<HeldSlice> saved_slices(const Program& program, const InstancesOf& instances_of,
                                    std::int64_t rank) {
  return Shares(program, instances_of, rank).list();
}

std::vector<PersistentTensor> persistent_tensors(const Program& program,
                                                 const std::vector<Instance>& instances) {
  std::vector<PersistentTensor> list;
  const auto add = [&](const Persistent& persistent) {
    const Value& tensor = program.value(persistent.tensor);
    const bool listed = tensor.part && tensor.part->begin > 0;  // the part before listed it
    if (!persistent.copy && !listed)
      list.push_back(
          {persistent.name, type_of(program, persistent), shape_of(program, tensor), persistent.moment,
           persistent.of_parameter,
           persistent.parameter == none ? "" : program.value(persistent.parameter).added_by,
           program.value(persistent.value).starts_anew,
           tensor.declared && tensor.is_apart() ? std::make_optional(tensor.on_resize) : std::nullopt});
  };
  Lister(program, add).list(instances);
  return list;
}

std::int64_t persistent_bytes(const Program& program, const std::vector<Instance>& instances) {
  std::int64_t bytes = 0;
  for (const PersistentTensor& tensor : persistent_tensors(program, instances))
    bytes += elements_of(tensor.shape) * size_of(tensor.type);
  return bytes;
}

}  // namespace prun
