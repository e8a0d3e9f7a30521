#include "program/step_program.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/narrow.hpp"
#include "base/require.hpp"
#include "base/text.hpp"

namespace prun {

// ------------------------------------------------------------------- step program

std::int64_t Value::elements() const {
  std::int64_t n = 1;
  for (const Dim& dim : dims) n *= dim.extent;
  return n;
}

std::vector<Dim> Value::tensor_dims() const {
  std::vector<Dim> whole = dims;
  if (part) whole[part->dim] = part->whole;
  return whole;
}

bool Op::has_attr(std::string_view name) const {
  return std::any_of(def->attrs, def->attrs + def->attr_count,
                     [&](const AttrDef& attr) { return attr.name == name; });
}

OpCost Op::cost(const OpShape& shape) const {
  if (!def->cost)
    throw_error(ErrorCode::bad_input, "op '", kind(),
                "' does not say what it costs; give it a function cost");
  OpCost cost;
  raise(def->cost(&shape, &cost));
  for (const double number : {cost.flops, cost.bytes, cost.repeated})
    if (!std::isfinite(number) || number < 0)
      throw_error(ErrorCode::bad_input, "op '", kind(), "' says that it costs ", cost.flops, " FLOPs, ",
                  cost.bytes, " bytes, ", cost.repeated, " of them repeated; each is a number from 0 on");
  return cost;
}

bool Program::is_updated_with(Id id, std::int64_t delay) const {
  const Op& of = op(id);
  for (std::size_t i = 0; i < of.operands.size(); ++i)
    if (of.operands[i] != none && of.access(i) != Access::read && value(of.operands[i]).age > delay)
      return false;
  return true;
}

Program::Program(std::shared_ptr<const OpRegistry> registry, Precision precision, ModelContext context)
    : registry_(std::move(registry)), precision_(precision), context_(context) {
  add_segment("step", 1);
  declare_inputs();
}

void Program::declare_inputs() {
  const Dim batch{"batch", context_.batch}, seq{"seq", context_.seq};
  const auto declare = [&](const char* name, DType type, std::vector<Dim> dims) {
    Value value;
    value.name = name;
    value.role = Role::input;
    value.dtype = type;
    value.dims = std::move(dims);
    value.segment = step_segment();
    add_value(std::move(value));
  };
  declare("tokens", DType::i32, {batch, seq});
  declare("targets", DType::i32, {batch, seq});
  declare("samples", DType::i64, {batch});
}

const Value& Program::value(Id id) const {
  require(id < values_.size(), "no value ", id);
  return values_[id];
}
Value& Program::value(Id id) { return const_cast<Value&>(std::as_const(*this).value(id)); }

const Op& Program::op(Id id) const {
  require(id < ops_.size() && ops_[id].def, "no op ", id);
  return ops_[id];
}
Op& Program::op(Id id) { return const_cast<Op&>(std::as_const(*this).op(id)); }

const SegmentData& Program::segment(Id id) const {
  require(id < segments_.size(), "no segment ", id);
  return segments_[id];
}
SegmentData& Program::segment(Id id) { return const_cast<SegmentData&>(std::as_const(*this).segment(id)); }

std::vector<Id> Program::parameters() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::parameter) list.push_back(id);
  return list;
}

std::vector<Id> Program::inputs() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::input) list.push_back(id);
  return list;
}

std::vector<Id> Program::runtimes() const {
  std::vector<Id> list;
  for (Id id = 0; id < value_count(); ++id)
    if (values_[id].role == Role::runtime) list.push_back(id);
  return list;
}

std::vector<Id> Program::tallies() const {
  std::vector<Id> list = runtimes();
  std::erase_if(list, [&](Id id) { return !values_[id].tally; });
  return list;
}

Id Program::find_runtime(std::string_view name) const {
  for (Id id : runtimes())
    if (values_[id].name == name) return id;
  return none;
}

// ------------------------------------------------------------------- step program devices
// Implements class Program: the devices of a rank on which its values are stored and its functions run.

void Program::check_device(std::int32_t device) const {
  if (device < 0 || device > static_cast<std::int32_t>(requests_.more_devices.size()))
    throw_error(ErrorCode::bad_input, "a rank has no device ", device,
                "; add it before something lies or runs there");
}

void Program::set_place(Id id, MemoryPlace place) {
  check_device(place.device);
  value(id).place = place;
}

void Program::run_on(Id segment_id, FunctionKind function, std::int32_t device) {
  check_device(device);
  segment(segment_id).devices[static_cast<std::size_t>(function)] = device;
}

void Program::share_saved(Id segment_id, std::vector<SavedShare> shares) {
  std::int64_t sum = 0;
  for (const SavedShare& share : shares) {
    check_device(share.place.device);
    const auto same = [&](const SavedShare& other) { return other.place == share.place; };
    const bool twice = std::count_if(shares.begin(), shares.end(), same) > 1;
    if (twice || share.percent < 1)
      throw_error(ErrorCode::bad_input, "cannot place ", share.percent,
                  " per cent of the saved activations of segment '", segment(segment_id).name, "' in ",
                  name_of(share.place.space), " of device ", share.place.device,
                  twice ? ": it is named twice" : ": that is less than 1",
                  "; name each place once, with 1 per cent or more");
    sum += share.percent;
  }
  if (sum != 100)
    throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name,
                "': the shares of what backward reads of forward come to ", sum,
                " per cent; let them come to 100");
  segment(segment_id).saved = std::move(shares);
}

bool Program::is_shown(Id segment_id, FunctionKind function) const {
  return !shown_ || segment(segment_id).device_of(function) == *shown_;
}

bool Program::is_used_elsewhere(Id value) const {
  if (is_carried(value) || is_carried_gradient(value)) return true;
  if (requests_.more_devices.empty()) return false;
  return std::any_of(ops_.begin(), ops_.end(), [&](const Op& op) {
    return op.def && !is_shown(op.segment, op.function) &&
           std::find(op.operands.begin(), op.operands.end(), value) != op.operands.end();
  });
}

// ------------------------------------------------------------------- step program splits
// Implements class Program: along which axes its dimensions are split, and what of a value one rank has.

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

// ------------------------------------------------------------------- step program values
// Implements class Program: its values and segments, and what they may contain.

Id Program::add_segment(std::string_view name, std::int64_t repeat) {
  if (name.empty() || repeat < 1)
    throw_error(ErrorCode::bad_input, "segment '", name, "' needs a name and at least one repetition, not ",
                repeat);
  for (const SegmentData& other : segments_)
    if (other.name == name) throw_error(ErrorCode::bad_input, "there are two segments '", name, "'");
  SegmentData segment;
  segment.name = name;
  segment.repeat = repeat;
  segments_.push_back(std::move(segment));
  return static_cast<Id>(segments_.size() - 1);
}

Id Program::add_value(Value value) {
  require(value.dims.size() <= max_dims, "value '", value.name, "' has more than ", max_dims, " dimensions");
  constexpr std::int64_t most_elements = std::int64_t{1} << 52;  // most elements whose bytes can be added
  std::int64_t elements = 1;
  for (std::size_t i = 0; i < value.dims.size(); ++i) {
    const Dim& dim = value.dims[i];
    if (dim.extent < 1)
      throw_error(ErrorCode::bad_input, "value '", value.name, "': dimension '", dim.name.view(), "' is ",
                  dim.extent);
    elements = saturated_product(static_cast<std::uint64_t>(elements), static_cast<std::size_t>(dim.extent));
    if (elements > most_elements)
      throw_error(ErrorCode::bad_input, "value '", value.name, "' has more than 2^52 elements");
    for (std::size_t j = 0; j < i; ++j)
      if (value.dims[j].name == dim.name)
        throw_error(ErrorCode::bad_input, "value '", value.name, "' has two dimensions named '",
                    dim.name.view(), "'; rename one, placement goes by name");
  }
  const Id id = value_count();
  segment(value.segment).values.push_back(id);
  values_.push_back(std::move(value));
  return id;
}

Id Program::add_parameter(Id segment_id, const ParameterSpec& spec) {
  for (Id other : segment(segment_id).values)
    if (values_[other].role == Role::parameter && values_[other].name == spec.name.view())
      throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name, "' has two parameters '",
                  spec.name.view(), "'");
  Value value;
  value.name = spec.name.view();
  value.role = Role::parameter;
  value.dtype = precision_.compute;
  value.dims.assign(spec.dims.begin(), spec.dims.end());
  value.segment = segment_id;
  value.init = spec.init;
  value.decay = spec.decay;
  value.added_by = writer_;
  return add_value(std::move(value));
}

void Program::set_matrices(Id parameter, const Matrices& matrices) {
  Value& value = this->value(parameter);
  if (value.role != Role::parameter)
    throw_error(ErrorCode::bad_input, "'", value.name, "' is no parameter, it is not made of matrices");
  const auto rank = narrow<std::int32_t>(value.dims.size());
  if (matrices.batch < 0 || matrices.columns < 1 || matrices.batch + matrices.columns >= rank)
    throw_error(ErrorCode::bad_input, "parameter '", value.name, "' has ", rank, " dimensions, of which ",
                matrices.batch, " are to number matrices and ", matrices.columns,
                " columns; at least one each is left for rows and is columns");
  std::int64_t before = 0;
  for (const std::int64_t cut : matrices.cuts) {
    const Dim& dim = value.dims[static_cast<std::size_t>(matrices.batch)];
    if (cut != 0 && (cut <= before || cut >= dim.extent || before < 0))
      throw_error(ErrorCode::bad_input, "parameter '", value.name, "': dimension '", dim.name.view(), "' of ",
                  dim.extent, " is to be cut at ", cut, "; cuts grow, and leave something on either side");
    before = cut == 0 ? -1 : cut;
  }
  value.matrices = matrices;
}

Id Program::add_tally(Id segment_id, std::string_view name, std::span<const Dim> dims) {
  Value value;
  value.name = segment(segment_id).name + "." + std::string(name);
  if (find_runtime(value.name) != none)
    throw_error(ErrorCode::bad_input, "there are two sums '", value.name, "'");
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.dims = {{"layer", segment(segment_id).repeat}};
  value.dims.insert(value.dims.end(), dims.begin(), dims.end());
  value.segment = step_segment();
  value.tally = true;
  return add_value(std::move(value));
}

Id Program::use_parameter(Id segment_id, Id parameter) {
  const Value& value = this->value(parameter);
  if (value.role != Role::parameter)
    throw_error(ErrorCode::bad_input, "'", value.name, "' is no parameter, it cannot be tied");
  for (Id id : {value.segment, segment_id})
    if (segment(id).repeat != 1)
      throw_error(ErrorCode::bad_input, "parameter '", value.name, "' cannot be tied across segment '",
                  segment(id).name, "', which repeats");
  return parameter;
}

Id Program::input(Id, std::string_view name) {
  for (Id id : inputs())
    if (values_[id].name == name) return id;
  throw_error(ErrorCode::bad_input, "there is no input '", name, "'; there are tokens, targets and samples");
}

Id Program::runtime(std::string_view name) {
  if (const Id known = find_runtime(name); known != none) return known;
  Value value;
  value.name = name;
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.segment = step_segment();
  return add_value(std::move(value));
}

Id Program::incoming(Id id) {
  if (segment(id).incoming != none) return segment(id).incoming;
  require(id > 1, "segment '", segment(id).name,
          "' is the first of the chain, nothing comes in; begin it with tokens()");
  const Id before = segment(id - 1).outgoing;
  if (before == none)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' wants what '", segment(id - 1).name,
                "' hands on, but that has no outgoing value yet");
  Value copy;
  copy.name = "in";
  copy.dtype = value(before).dtype;
  copy.dims = value(before).dims;
  copy.segment = id;
  return segment(id).incoming = add_value(std::move(copy));
}

void Program::set_outgoing(Id id, Id value_id) {
  const Value& out = value(value_id);
  if (out.segment != id || out.role != Role::activation)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name,
                "' can hand on only a result of its own");
  if (segment(id).repeat > 1 && segment(id).incoming != none) {
    const Value& in = value(segment(id).incoming);
    if (in.dims != out.dims || in.dtype != out.dtype)
      throw_error(ErrorCode::bad_input, "segment '", segment(id).name,
                  "' repeats, so what it hands on must have the shape of what comes in");
  }
  segment(id).outgoing = value_id;
}

void Program::carry(Id id, Id value_id) {
  const Value& value = this->value(value_id);
  if (value.segment != id || value.role != Role::activation)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' can carry only a result of its own");
  if (segment(id).repeat != 1)
    throw_error(ErrorCode::bad_input, "segment '", segment(id).name, "' repeats, so '", value.name,
                "' would be as many values as there are layers; carry one of a segment that does not");
  if (!is_carried(value_id)) carried_.push_back({value_id, none});
}

bool Program::is_carried(Id value) const {
  return std::any_of(carried_.begin(), carried_.end(),
                     [&](const CarriedValue& carried) { return carried.value == value; });
}

bool Program::is_carried_gradient(Id value) const {
  return value != none && std::any_of(carried_.begin(), carried_.end(),
                                      [&](const CarriedValue& carried) { return carried.gradient == value; });
}

void Program::forget_value(Id id) { std::erase(segment(value(id).segment).values, id); }

}  // namespace prun
