#include "program/step_program.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <utility>

#include "base/require.hpp"
#include "base/saturated.hpp"
#include "base/text.hpp"

namespace prun {

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

// ---------------------------------------------------------------- access

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

// ---------------------------------------------------------------- values and segments

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
  constexpr std::int64_t most_elements = std::int64_t{1} << 52;  // whose bytes can be counted and added
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
  const auto rank = static_cast<std::int32_t>(value.dims.size());
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

Id Program::add_untrained(Id segment_id, const ParameterSpec& spec) {
  const Id id = add_parameter(segment_id, spec);
  values_[id].dtype = OpShape::statistics(precision_.compute);
  values_[id].frozen = values_[id].untrained = true;
  return id;
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

// ---------------------------------------------------------------- ops

namespace {

template <class DimsOf>
OpShape shape_of(const Program& program, const Op& op, DimsOf&& dims_of) {
  OpShape shape;
  shape.count = static_cast<std::int32_t>(op.operands.size());
  shape.attrs = op.attrs.data();
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none) continue;
    const std::vector<Dim>& dims = dims_of(op.operands[i]);
    OperandShape& o = shape.operand[i];
    o.present = true;
    o.dtype = program.value(op.operands[i]).dtype;
    o.rank = static_cast<std::int32_t>(dims.size());
    std::copy(dims.begin(), dims.end(), o.dims);
  }
  return shape;
}

}  // namespace

OpShape Program::shape(const Op& op) const {
  return shape_of(*this, op, [this](Id id) -> const std::vector<Dim>& { return value(id).dims; });
}

OpShape Program::local_shape(const Op& op) const {
  return shape_of(*this, op, [this](Id id) { return local_dims(id); });
}

// ---------------------------------------------------------------- parts of values

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

// A program is written over a mesh that has the axis as two already, or once more over such a one.
void Program::split_beyond(std::string_view dim, std::string_view within, std::string_view axis,
                           SplitScope scope) {
  const std::vector<AxisId> found = mesh_.all_of(axis);
  if (found.size() == 2) {
    for (const AxisId one : found) split_for(mesh_.name(one) == axis ? dim : within, one, scope);
    return;
  }
  const std::int64_t others = ranks_that_split(dim), all = common_extent(dim),
                     left = all % others == 0 ? all / others : all;
  split(dim, axis, scope);  // refuses what is not there
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

// Of all axes together that have been asked to so far.
std::int64_t Program::ranks_that_split(std::string_view dim) const {
  std::int64_t ranks = 1;
  for (const Split& split : requests_.splits)
    if (split.dim == Name(dim)) ranks *= mesh_.extent(split.axis);
  return ranks;
}

void Program::check_has_dim(std::string_view dim, std::string_view axis) const {
  std::set<std::string> known;
  for (const Value& value : values_)
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
      throw_error(ErrorCode::bad_input, "segment '", segment(segment_id).name,
                  "': ", name_of(share.place.space), " of device ", share.place.device, " is to have ",
                  share.percent, " per cent of what backward reads of forward",
                  twice ? ", and is named twice" : "", "; name each place once, with 1 per cent or more");
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
  if (requests_.more_devices.empty()) return false;
  return std::any_of(ops_.begin(), ops_.end(), [&](const Op& op) {
    return op.def && !is_shown(op.segment, op.function) &&
           std::find(op.operands.begin(), op.operands.end(), value) != op.operands.end();
  });
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

OpShape Program::infer(const Op& op) const {
  OpShape shape = this->shape(op);
  const Status status = op.def->rule(&shape);
  if (!status.ok())
    throw_error(ErrorCode::bad_input, "segment '", segment(op.segment).name, "', op '", op.kind(),
                "': ", status.message);
  return shape;
}

void Program::bind_attrs(Op& op, std::span<const AttrValue> attrs) const {
  for (std::uint64_t i = 0; i < op.def->attr_count; ++i) op.attrs.push_back(op.def->attrs[i].fallback);
  for (const AttrValue& given : attrs) {
    std::uint64_t i = 0;
    while (i < op.def->attr_count && std::string_view(op.def->attrs[i].name) != given.name) ++i;
    if (i == op.def->attr_count)
      throw_error(ErrorCode::bad_input, "op '", op.kind(), "' has no attribute '", given.name, "'");
    if (op.def->attrs[i].real)
      op.attrs[i].f = given.value;
    else
      op.attrs[i].i = static_cast<std::int64_t>(given.value);
  }
}

void Program::check_operands(const Op& op) const {
  if (op.operands.size() != op.def->operand_count)
    throw_error(ErrorCode::bad_input, "op '", op.kind(), "' takes ", op.def->operand_count, " operands, not ",
                op.operands.size());
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.operands[i] == none && !op.def->operands[i].optional && op.access(i) != Access::write)
      throw_error(ErrorCode::bad_input, "op '", op.kind(), "': operand '", op.def->operands[i].name,
                  "' is missing");
    if (op.operands[i] != none) value(op.operands[i]);
  }
}

Id Program::place(Op op, Id before) {
  const Id id = static_cast<Id>(ops_.size());
  std::vector<Id>& list = segment(op.segment).ops(op.function);
  const auto at = before == none ? list.end() : std::find(list.begin(), list.end(), before);
  require(before == none || at != list.end(), "op ", before, " is not in that function");
  list.insert(at, id);
  ops_.push_back(std::move(op));
  return id;
}

Value Program::output_value(const Op& op, std::size_t index, const OperandShape& shape) const {
  Value value;
  value.name = std::string(op.kind()) + "." + op.def->operands[index].name;
  value.dtype = shape.dtype;
  value.dims.assign(shape.dims, shape.dims + shape.rank);
  value.segment = op.segment;
  return value;
}

namespace {

const OpDef& find_op(const OpRegistry& registry, std::string_view kind, const SegmentData& segment) {
  if (registry.contains(kind)) return registry.find(kind);
  throw_error(ErrorCode::not_found, "segment '", segment.name, "': there is no op '", kind, "'",
              did_you_mean(kind, registry.kinds()),
              "; one of an op plugin is there where the recipe names that: [plugins] ops = [\"...\"]");
}

}  // namespace

Id Program::add_op(Id segment_id, FunctionKind function, Part part, std::string_view kind,
                   std::vector<Id> operands, std::span<const AttrValue> attrs, Id before) {
  Op op{&find_op(*registry_, kind, segment(segment_id)), segment_id, function, part, std::move(operands), {}};
  bind_attrs(op, attrs);
  check_operands(op);
  check_shapes(op);
  return place(std::move(op), before);
}

// Returns what the rule says.
OpShape Program::check_shapes(const Op& op) const {
  const OpShape given = shape(op), right = infer(op);
  for (int i = 0; i < given.count; ++i) {
    const OperandShape &a = given.operand[i], &b = right.operand[i];
    const bool same = a.dtype == b.dtype && a.rank == b.rank && std::equal(a.dims, a.dims + a.rank, b.dims);
    require(!a.present || same, "op '", op.kind(), "': operand '", op.def->operands[i].name,
            "' has a wrong shape");
  }
  return right;
}

// What placement would have seen to, had the op been there before.
void Program::check_lies_right(const Op& op, const OpShape& rule) const {
  const auto refuse = [&](AxisId axis, std::size_t i) {
    throw_error(ErrorCode::bad_input, "op '", op.kind(), "' cannot stand in for another: operand '",
                op.def->operands[i].name, "' is ", to_text(value(op.operands[i]).on(axis)), " on axis '",
                mesh_.name(axis), "', and the op needs it otherwise or the other operands alike");
  };
  for (AxisId axis = 0; axis < mesh_.size(); ++axis)
    for (std::size_t i = 0; i < op.operands.size(); ++i) {
      if (op.operands[i] == none) continue;
      const AxisPlacement at = value(op.operands[i]).on(axis);
      const std::uint32_t passing = at.is_maximum() ? rule.monotone : rule.linear;
      if (at.is_incomplete() && op.access(i) == Access::read && (passing >> i & 1u) == 0) refuse(axis, i);
      if (!at.is_sharded()) continue;
      if (std::find(std::begin(rule.wholes), std::end(rule.wholes), at.dim) != std::end(rule.wholes))
        refuse(axis, i);
      for (Id other : op.operands) {
        if (other == none || value(other).on(axis) == at) continue;
        for (const Dim& dim : value(other).dims)
          if (dim.name == at.dim) refuse(axis, i);
      }
    }
}

std::vector<Id> Program::add_op_creating(Id segment_id, FunctionKind function, Part part,
                                         std::string_view kind, std::span<const Id> inputs,
                                         std::span<const AttrValue> attrs, Id before) {
  Op op{&find_op(*registry_, kind, segment(segment_id)), segment_id, function, part, {}, {}};
  bind_attrs(op, attrs);
  std::size_t next = 0;
  for (std::uint64_t i = 0; i < op.def->operand_count; ++i) {
    const bool creates = op.access(i) == Access::write;
    // Optional operands at the end may be left out of the list.
    op.operands.push_back(!creates && next < inputs.size() ? inputs[next++] : none);
  }
  if (next != inputs.size())
    throw_error(ErrorCode::bad_input, "op '", kind, "' takes ", next, " operands, ", inputs.size(), " given");
  check_operands(op);
  const OpShape shape = infer(op);
  std::vector<Id> created;
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    if (op.access(i) != Access::write) continue;
    require(shape.operand[i].present, "op '", kind, "': its rule gives no shape to '",
            op.def->operands[i].name, "'");
    Value output = output_value(op, i, shape.operand[i]);
    if (op.def->copies) output.placement = value(op.operands[0]).placement;
    op.operands[i] = add_value(std::move(output));
    created.push_back(op.operands[i]);
  }
  place(std::move(op), before);
  return created;
}

Id Program::add_copy(Id id, FunctionKind function, std::vector<Id> operands, Id before) {
  Op copy = op(id);
  copy.function = function;
  copy.operands = std::move(operands);
  check_operands(copy);
  infer(copy);
  return place(std::move(copy), before);
}

void Program::replace_operand(Id id, std::size_t index, Id value_id) {
  Op& target = op(id);
  require(index < target.operands.size(), "op '", target.kind(), "' has no operand ", index);
  const Id old = target.operands[index];
  target.operands[index] = value_id;
  try {
    check_operands(target);
    infer(target);
  } catch (const Error&) {
    target.operands[index] = old;
    throw;
  }
}

void Program::replace_kind(Id id, std::string_view kind) {
  Op& target = op(id);
  const OpDef& def = find_op(*registry_, kind, segment(target.segment));
  bool same = def.operand_count == target.def->operand_count;
  for (std::uint64_t i = 0; same && i < def.operand_count; ++i)
    same = def.operands[i].access == target.def->operands[i].access;
  if (!same)
    throw_error(ErrorCode::bad_input, "op '", kind, "' cannot stand in for '", target.kind(),
                "': it reads and writes other operands");
  Op changed = target;
  changed.def = &def;
  changed.attrs.clear();
  bind_attrs(changed, {});
  infer(changed);
  target = std::move(changed);
}

void Program::replace_op(Id id, std::string_view kind, std::vector<Id> operands,
                         std::span<const AttrValue> attrs) {
  const Op& old = op(id);
  Op fresh{&find_op(*registry_, kind, segment(old.segment)),
           old.segment,
           old.function,
           old.part,
           std::move(operands),
           {},
           old.again};
  bind_attrs(fresh, attrs);
  check_operands(fresh);
  check_lies_right(fresh, check_shapes(fresh));
  op(id) = std::move(fresh);
}

void Program::forget_value(Id id) { std::erase(segment(value(id).segment).values, id); }

void Program::erase_op(Id id) {
  Op& target = op(id);
  std::erase(segment(target.segment).ops(target.function), id);
  target.def = nullptr;
}

void Program::set_attr(Id id, std::string_view name, double value) {
  Op& target = op(id);
  for (std::uint64_t i = 0; i < target.def->attr_count; ++i) {
    if (target.def->attrs[i].name != name) continue;
    if (target.def->attrs[i].real)
      target.attrs[i].f = value;
    else
      target.attrs[i].i = static_cast<std::int64_t>(value);
    infer(target);
    return;
  }
  throw_error(ErrorCode::bad_input, "op '", target.kind(), "' has no attribute '", name, "'");
}

double Program::attr(Id id, std::string_view name) const {
  const Op& source = op(id);
  for (std::uint64_t i = 0; i < source.def->attr_count; ++i)
    if (source.def->attrs[i].name == name)
      return source.def->attrs[i].real ? source.attrs[i].f : static_cast<double>(source.attrs[i].i);
  throw_error(ErrorCode::bad_input, "op '", source.kind(), "' has no attribute '", name, "'");
}

}  // namespace prun
