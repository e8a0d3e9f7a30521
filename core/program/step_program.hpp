// Holds the step as data: values, ops, functions and segments. Models write it, passes and strategies rewrite
// it, the planner turns it into offsets and calls. Nothing here knows a device or a rank.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/numbered.hpp"
#include "ops/registry.hpp"
#include "program/delays.hpp"
#include "program/mesh.hpp"
#include "program/requests.hpp"
#include "prun/model.hpp"
#include "prun/program.hpp"

namespace prun {

// The first functions run for each microbatch and read parameters; the second are those behind forward.
inline constexpr FunctionKind microbatch_functions[] = {FunctionKind::forward, FunctionKind::backward,
                                                        FunctionKind::backward_weight};
// These update parameters; a step calls `update` for an instance, or the others in this order.
inline constexpr FunctionKind optimizer_functions[] = {FunctionKind::update, FunctionKind::speculate,
                                                       FunctionKind::settle};
constexpr bool is_optimizer(FunctionKind kind) {
  return kind == FunctionKind::update || kind == FunctionKind::speculate || kind == FunctionKind::settle;
}
// Returns whether a function changes what lasts from step to step.
constexpr bool is_update(FunctionKind kind) { return is_optimizer(kind) || kind == FunctionKind::periodic; }
inline constexpr FunctionKind backward_functions[] = {FunctionKind::backward, FunctionKind::backward_weight};

// Holds what the recipe's [precision] says.
struct Precision {
  DType compute = DType::f32;    // type of parameters and activations
  DType master = DType::f32;     // type of the weights that are updated
  DType moments = DType::f32;    // type of what the optimizer keeps beside them
  DType gradient = DType::f32;   // type of accumulators
  DType reduce = DType::f32;     // type in which gradients travel when they are summed over ranks
  bool split = false;            // only the low half of a master copy is kept; the parameter is its high half
  std::int64_t reduce_bits = 0;  // bits of the codes gradients travel in (prun/block_codes.hpp); 0: uncoded
  std::int64_t gather_bits = 0;  // bits of the codes in which gathered parameters travel; 0: uncoded
  bool gather_fp8 = false;       // whether these codes are numbers in e4m3, rather than whole ones
  bool eight_bits = false;       // whether moments that come in blocks have 8 bits (prun/eight_bits.hpp)

  bool has_master() const { return compute != master; }
  DType kept_master() const { return split ? DType::u16 : master; }
  bool rounds_by_chance() const { return master == DType::bf16 || moments == DType::bf16 || eight_bits; }
};

// Describes a value's part of a tensor of the model, whose rest is in other values: the tensor's name, and
// where the part begins along one dimension, whose name and extent in the tensor are `whole`.
struct TensorPart {
  std::string tensor;
  std::size_t dim = 0;
  std::int64_t begin = 0;
  Dim whole;
};

// Says that a value lies in another one's memory: from an element on or, with an axis, as the rank's own part
// of it along that.
struct ViewOf {
  Id whole = none;
  std::int64_t first = 0;  // counted in elements
  AxisId part = no_axis;

  bool is_part() const { return part != no_axis; }
};

// Says how long memory is kept that values lie in side by side.
enum class ValueLifetime : std::uint8_t {
  step,          // from when a step clears it until its update has read it
  persistent,    // from step to step
  just_in_time,  // from when it is gathered until the use that it is gathered for
  unreduced,     // until the ranks have summed a microbatch's gradients
};

struct Value {
  std::string name;  // "attention.qkv.weight"; unique within its segment for parameters
  Role role = Role::activation;
  DType dtype = DType::f32;
  std::vector<Dim> dims;
  Id segment = none;

  // These are for parameters only.
  Init init;
  bool frozen = false;
  bool decay = false;
  double lr_scale = 1;
  double weight_decay = -1;  // decay of its group; negative: the optimizer's own
  Matrices matrices;
  std::int32_t optimizer = 0;  // number of its optimizer in the recipe (program/optimizers.hpp)
  Id gradient = none;
  Id master = none;
  std::vector<Id> states;  // in the optimizer's order; for a parameter in a bucket, those outside it

  std::vector<Id> scales;  // scales of each state's blocks, or none for a state that is not kept in 8 bits
  Id stand_in = none;      // state that stands for it in evaluations and checkpoints

  // For a state, this says that its shape is its own, not its parameter's.
  bool own_shape = false;
  // For a state that may begin anew where a run goes on in another layout, this is the key of
  // the recipe that `run.allow_changed` must name for that.
  std::string starts_anew = {};
  // For scales, this says how many of the parameter's elements, in their order, each scale stands for.
  std::int64_t block = 1;

  // This is listed by mesh axis; it is empty until placement, which means replicated on all. An accumulator's
  // says how its contributions arrive, before they are summed over the ranks.
  std::vector<AxisPlacement> placement;
  // A staged number counts over these dimensions, if each rank counts for its own part of them: it is a
  // partial sum on the axes that split one of these. "*" means every axis.
  std::vector<Name> counted;

  // A parameter, its gradient and its state have this if they are a part of a tensor.
  std::optional<TensorPart> part;

  // For a parameter that is another rank's copy, and a state kept beside it, this is the original, of an
  // earlier segment.
  Id copy_of = none;

  // For a parameter that the model's plugin knows nothing of, and for a state of a strategy's own, this is
  // the section of the strategy that added it, "strategy.1".
  std::string added_by;

  // For a parameter whose last updates passes do not see yet, these are states with its value one update
  // before, two, and so on.
  std::vector<Id> before;
  // For such a state, these say how many updates old it is, and of which parameter.
  std::int32_t age = 0;
  Id before_of = none;

  // A strategy's own state (ProgramApi::state) has this set, and the next four.
  bool declared = false;
  bool compared = false;
  OnResize on_resize = OnResize::refuse;
  Id starts_as = none;   // parameter whose numbers it starts as
  Id stands_for = none;  // parameter that has this one as its stand_in
  // A parameter has this set if no gradient trains it, ops of `update` may change it, and every rank has all
  // of it.
  bool untrained = false;
  // A runtime value has this set if it is a sum of a step with a row for each layer of a segment, which
  // observers get.
  bool tally = false;
  // A frozen parameter has this set if it comes from what `model.init` names: checkpoints hold the digest of
  // that, not the parameter.
  bool in_base = false;

  // A runtime value has this set if a step reads what the step before left, before it writes it. A state has
  // it set if a text leaves it from step to step, and it belongs to no parameter.
  bool carried = false;

  std::int32_t bucket = -1;  // bucket of a parameter, its gradient or a view

  // A value that has no memory of its own has this.
  std::optional<ViewOf> view;
  // A value that others lie in has this; for all else the role decides.
  std::optional<ValueLifetime> lifetime;

  // A gradient's sum, or what backward reads of forward, has this set if its memory is the instance's until
  // it is complete and has left, or from when it has returned. A gradient that has a place as well is the
  // instance's from when it arrives there until the update has read it.
  bool in_turn = false;

  // Without a place, the value lies in the recipe's device's own memory or, if it dies in the function that
  // writes it, in that of the device that runs it; staged values lie in pinned memory.
  std::optional<MemoryPlace> place;

  AxisPlacement on(AxisId axis) const {
    return axis < placement.size() ? placement[axis] : AxisPlacement::replicated();
  }
  // Returns the dimensions of the tensor that the value is a part of, or its own.
  std::vector<Dim> tensor_dims() const;
  // Says whether ranks have summands of it, or values of their own, along some axis, that last.
  bool is_apart() const;
  // Returns the elements of the whole value.
  std::int64_t elements() const;
  std::int64_t bytes() const { return elements() * size_of(dtype); }
};

// Packs parameters of one segment that are updated alike into a flat range that the ranks of an axis share
// out: each owns an equal part of it. Every member begins at a multiple of bucket_grain elements, in all
// types. Where they lie, and how long, each value says itself (Value::view, Value::lifetime).
struct Bucket {
  Id segment = none;
  AxisId axis = 0;
  bool coded = false;  // whether parameters or gradients travel in codes, as Precision says
  // If gradients are never summed, but what the update makes of them is, this is the axis that sums that.
  std::optional<AxisId> summed_in_update = {};
  std::vector<Id> parameters;
  std::vector<std::int64_t> offsets;  // counted in elements
  std::int64_t elements = 0;          // padding included; those of one rank of the other axes
  // These are flat values [parts, packed] over all of it and [packed] over the own part: views where the
  // whole is kept, otherwise values of their own.
  Id all_parameters = none, own_parameters = none;
  Id all_gradients = none, own_gradients = none;
  Id master = none;
  std::vector<Id> states;
  std::vector<Id> scales;  // scales, as the members have them
};
inline constexpr std::int64_t bucket_grain = 128;

struct Op {
  const OpDef* def = nullptr;
  Id segment = none;
  FunctionKind function = FunctionKind::forward;
  Part part = Part::input;
  std::vector<Id> operands;  // operands in the order of def->operands; none: absent
  std::vector<Attr> attrs;   // attributes in the order of def->attrs
  bool again = false;        // computes in backward what forward has computed already

  std::string_view kind() const { return def->kind; }
  bool is(std::string_view kind) const { return def->kind == kind; }
  bool has_attr(std::string_view name) const;
  Access access(std::size_t i) const { return def->operands[i].access; }
  const OpExchange* exchange() const { return def->exchange; }
  bool exchanges_in_place() const { return exchange() && operands.size() == 1; }
  // Returns the cost for operands of this shape: whole tensors, or one rank's part.
  OpCost cost(const OpShape& shape) const;
};

// Names a number by which the recipe sizes the model: {"model.kv_heads", 8}.
struct RecipeSize {
  std::string key;
  std::int64_t value = 0;
};

// Holds a LowRank as the core keeps it.
struct LowRankChange {
  Id weight = none, down = none, up = none;
  std::size_t in_dims = 1;  // number of the weight's last dimensions that it sums over
  // This is the dimension of the weight of which `up` has only elements [begin, end), or the weight's number
  // of dimensions.
  std::size_t part = 0;
  std::int64_t begin = 0, end = 0;
  double factor = 1, dropout = 0;

  friend bool operator==(const LowRankChange&, const LowRankChange&) = default;
};

// Holds a piece of the model that repeats or stands alone. Segments form a chain: what one hands on, the next
// (or its own next repetition) takes in.
struct SegmentData {
  std::string name;
  std::int64_t repeat = 1;
  Id incoming = none;
  Id outgoing = none;
  Id incoming_gradient = none;
  Id outgoing_gradient = none;
  std::array<std::vector<Id>, function_kinds> functions;
  std::array<std::int32_t, function_kinds> devices{};  // devices that run the functions
  std::vector<Id> values;
  bool recompute_to_fit = false;   // whether the planner chooses what it computes again
  std::set<std::string> left_out;  // kinds of ops whose gradients compute again what they could have kept
  // This says where what backward reads of forward lies meanwhile; if it is empty, on the device.
  std::vector<SavedShare> saved;

  std::vector<Id>& ops(FunctionKind kind) { return functions[static_cast<std::size_t>(kind)]; }
  const std::vector<Id>& ops(FunctionKind kind) const { return functions[static_cast<std::size_t>(kind)]; }
  std::int32_t device_of(FunctionKind kind) const { return devices[static_cast<std::size_t>(kind)]; }
};

// Describes a result of a segment that ops of all segments behind it may read: its allocation is one for all
// of them. Each adds to the gradient in its backward, which only the value's own segment reads.
struct CarriedValue {
  Id value = none;
  Id gradient = none;  // none if the program has no backward, or the value no gradient

  friend bool operator==(const CarriedValue&, const CarriedValue&) = default;
};

// Holds the arrays that a plugin has been shown last.
struct ShownProgram {
  std::vector<ProgramView::Value> values;
  std::vector<ProgramView::Op> ops;
  std::vector<Lies> lies;
  std::vector<double> layer_flops;  // of layer_flops, not of view
};

// Holds what strategies are shown in phase `collectives`, with the arrays behind it.
struct FlatParameters {
  bool shown = false;  // from when they are made until that phase is over
  std::vector<FlatParameter> list;
  std::deque<std::vector<AxisInfo>> summed;
  std::deque<std::vector<Id>> member_codes;
  std::deque<std::vector<Text>> axes;
};

class Program {
 public:
  Program(std::shared_ptr<const OpRegistry> registry, Precision precision, ModelContext context);

  // --- writing ---
  void set_mesh(Mesh mesh) { mesh_ = std::move(mesh); }
  // A refusal uses these to speak of what the user wrote.
  void set_recipe_sizes(std::vector<RecipeSize> sizes) { recipe_sizes_ = std::move(sizes); }
  // Sets the recipe's section whose plugin writes from now on; empty means the model's.
  void set_writer(std::string section) { writer_ = std::move(section); }
  const std::string& writer() const { return writer_; }
  // Begins to note what a plugin edits in a placed program: EditCheck checks it.
  void begin_edits();
  void end_edits() { checked_edits_ = edits_; }
  void note_edit(Id op);
  // Notes a value that lies otherwise from here on, or is completed by other ops.
  void note_touched(Id value);
  struct Edits {
    std::set<Id> ops;      // ops that plugins have added or changed since placement
    std::set<Id> touched;  // values that these write, or that ops wrote which are gone
    Id first_value = 0;    // the first value that the last plugin may have added
    bool fresh = false;    // whether that plugin has edited anything
  };
  Edits& edits() { return edits_; }
  // Holds the ops that give each rank its share of what all have alike, where that joins a sum.
  std::set<Id>& shares() { return shares_; }
  void set_placed() { placed_ = true; }
  bool is_placed() const { return placed_; }
  void set_step_context(const StepContext& context) { step_context_ = context; }
  const StepContext& step_context() const { return step_context_; }
  // Sets how old the weights are that passes of each instance train with (delay_weights() writes that).
  void set_delays(Delays delays) { delays_ = std::move(delays); }
  const Delays& delays() const { return delays_; }
  std::int64_t delay() const { return delays_.longest(); }
  // Returns a parameter as it was so many updates ago; for 0, the parameter itself.
  Id as_before(Id parameter, std::int64_t updates) const {
    return updates == 0 ? parameter : value(parameter).before.at(static_cast<std::size_t>(updates) - 1);
  }
  // Says whether the update of an instance with that delay has the op: it keeps no versions that no pass
  // reads.
  bool is_updated_with(Id op, std::int64_t delay) const;
  // Requests that a dimension lies on an axis: core/placement derives the rest. Earlier ones come first where
  // a value has several.
  void split(std::string_view dim, std::string_view axis, SplitScope scope = SplitScope::everywhere);
  void split(std::string_view dim, AxisId axis, SplitScope scope = SplitScope::everywhere);
  // Does the same over an axis of more ranks than the dimension has parts: the rest of it splits `within`.
  void split_beyond(std::string_view dim, std::string_view within, std::string_view axis,
                    SplitScope scope = SplitScope::everywhere);
  // Returns what else strategies request. Splits come by split(), which checks that there is such a
  // dimension.
  Requests& requests() { return requests_; }
  // Says where a value lies; the next function says where a function of a segment runs.
  void set_place(Id value, MemoryPlace place);
  void run_on(Id segment, FunctionKind function, std::int32_t device);
  void share_saved(Id segment, std::vector<SavedShare> shares);
  // Shows plugins only the functions that this device runs; without a device, all.
  void show_functions_of(std::optional<std::int32_t> device) { shown_ = device; }
  // Sets how the model maps Hugging Face weights.
  void set_foreign_weights(ForeignWeights weights);
  // Adds a change of low rank, or refuses what is none.
  void add_low_rank(const LowRank& change);
  Id add_segment(std::string_view name, std::int64_t repeat);
  Id add_value(Value value);
  Id add_parameter(Id segment, const ParameterSpec& spec);
  void set_matrices(Id parameter, const Matrices& matrices);
  // Adds state that no optimizer moves: see ProgramApi::state.
  Id add_state(Id segment, const KeptState& state);
  // Cuts a state that lies alike on an axis.
  void place_over(Id state, const Lies& lies);
  // These three are ProgramApi's.
  void vary(std::string_view axis);
  void run_periodically(std::int64_t every);
  void evaluate_with(Id parameter, Id state);
  // So are these two: a value placed as another one, and codes that are gathered in place of a parameter.
  Id add_beside(const AddedValue& described);
  void gather_as(Id parameter, const AddedValue& codes);
  Id add_tally(Id segment, std::string_view name, std::span<const Dim> dims);
  Id use_parameter(Id segment, Id parameter);
  Id input(Id segment, std::string_view name);
  Id runtime(std::string_view name);
  Id incoming(Id segment);
  void set_outgoing(Id segment, Id value);
  // Carries a value of a segment that does not repeat.
  void carry(Id segment, Id value);
  std::vector<CarriedValue>& carried() { return carried_; }
  const std::vector<CarriedValue>& carried() const { return carried_; }
  // Says whether it is a carried value; the next function says whether it is the gradient of one.
  bool is_carried(Id value) const;
  bool is_carried_gradient(Id value) const;
  // Appends an op (before == none) or inserts it; every operand is given, in the order of the op's
  // definition. Shapes are checked against the op's rule.
  Id add_op(Id segment, FunctionKind function, Part part, std::string_view kind, std::vector<Id> operands,
            std::span<const AttrValue> attrs, Id before = none);
  // Does as add_op, but the operands the op writes are left out of `inputs`, created, and returned.
  std::vector<Id> add_op_creating(Id segment, FunctionKind function, Part part, std::string_view kind,
                                  std::span<const Id> inputs, std::span<const AttrValue> attrs, Id before);
  void replace_operand(Id op, std::size_t index, Id value);
  // Has these ops, or those of a segment's functions, use `by` wherever they use `value`; they leave the
  // operand out if `by` is none.
  void replace_in(std::span<const Id> ops, Id value, Id by);
  void replace_in(Id segment, std::span<const FunctionKind> functions, Id value, Id by);
  // Has the ops of forward behind the one that writes `by` read it in place of `value`: see ProgramApi.
  void replace_value(Id value, Id by);
  // Ends phase `model`: throws if what a segment hands on has another shape or type than what comes in behind
  // it, or an op of forward has one that its rule does not give. Shapes are final from then on.
  void settle_shapes();
  // Puts another op in an op's place, with every operand given. In a placed program, EditCheck checks that
  // they lie as it needs them.
  void replace_op(Id op, std::string_view kind, std::vector<Id> operands, std::span<const AttrValue> attrs);
  void erase_op(Id op);
  void set_attr(Id op, std::string_view name, double value);
  // Has an op write a result that it may leave out and has left out.
  Id add_result(Id op, std::size_t index);
  // Adds the same op on other operands.
  Id add_copy(Id op, FunctionKind function, std::vector<Id> operands, Id before);
  double attr(Id op, std::string_view name) const;
  // Returns the axis along which an op exchanges: see axis_attr.
  AxisId axis_of(Id op) const { return static_cast<AxisId>(attr(op, "axis")); }

  // --- reading ---
  // References stay valid while values, ops and segments are added; a replaced op changes in its place.
  const Value& value(Id id) const;
  Value& value(Id id);
  const Op& op(Id id) const;
  Op& op(Id id);
  const SegmentData& segment(Id id) const;
  SegmentData& segment(Id id);
  Id segment_count() const { return static_cast<Id>(segments_.size()); }
  Id value_count() const { return static_cast<Id>(values_.size()); }
  // Counts erased ops too: an op that is added has this number.
  Id op_count() const { return static_cast<Id>(ops_.size()); }
  Numbered<Bucket>& buckets() { return buckets_; }
  const Bucket& bucket_of(const Value& value) const {
    return buckets_[static_cast<std::size_t>(value.bucket)];
  }
  const Numbered<Bucket>& buckets() const { return buckets_; }
  // Forgets a value, for a pass that puts others in its place.
  void forget_value(Id id);
  Id step_segment() const { return 0; }  // its functions: load, begin, finish, report
  const std::vector<LowRankChange>& low_ranks() const { return low_ranks_; }
  ForeignWeightsView foreign_weights() const;
  const OpRegistry& registry() const { return *registry_; }
  const Precision& precision() const { return precision_; }
  const ModelContext& context() const { return context_; }
  std::vector<Id> parameters() const;  // parameters in registration order
  std::vector<Id> inputs() const;
  std::vector<Id> runtimes() const;
  std::vector<Id> tallies() const;
  Id find_runtime(std::string_view name) const;
  // Says how a value lies on an axis of the recipe's; refuses what a plugin has just added.
  Lies placement(Id value, std::string_view axis) const;
  // The interface of plugins fills it (program/api.cpp).
  ShownProgram& shown_program() { return shown_program_; }
  // The packer fills it (placement/pack.cpp), and it is empty again when the phase is over.
  FlatParameters& flat_parameters() { return flat_parameters_; }
  // These three are ProgramApi's, for the strategy that has asked for shards.
  Array<FlatParameter> shown_flat_parameters() const;
  Id add_flat_buffer(const FlatBuffer& described);
  void lie_within(Id shard, Id whole, AxisInfo ranks);
  // Returns operand shapes and attributes as a rule sees them, outputs included: whole tensors, or one rank's
  // part.
  OpShape shape(const Op& op) const;
  OpShape local_shape(const Op& op) const;
  const Mesh& mesh() const { return mesh_; }
  const Requests& requests() const { return requests_; }
  // Returns what the recipe gave a dimension its extent by: the key of the dimension's name, or one that ends
  // in it ("kv_heads" of "heads"). Null means that no key fits.
  const RecipeSize* recipe_size(const Dim& dim) const;
  bool is_shown(Id segment, FunctionKind function) const;
  // Says whether an op of a function that is not shown uses the value.
  bool is_used_elsewhere(Id value) const;
  // Returns the dimensions of one rank's part of a value.
  std::vector<Dim> local_dims(Id id) const;
  std::int64_t local_elements(Id id) const;
  std::int64_t local_bytes(Id id) const { return local_elements(id) * size_of(value(id).dtype); }
  // Returns the index, within the whole value, of the first element of a rank's part, by dimension.
  std::vector<std::int64_t> starts(Id id, std::int64_t rank) const;

 private:
  void check_device(std::int32_t device) const;
  void check_has_dim(std::string_view dim, std::string_view axis) const;
  void split_for(std::string_view dim, AxisId axis, SplitScope scope);
  std::int64_t common_extent(std::string_view dim) const;
  std::int64_t ranks_that_split(std::string_view dim) const;
  void check_operands(const Op& op) const;
  void check_shapes(const Op& op) const;
  void reshape_results(const Op& op);
  bool hands_on_alike(Id segment, Id incoming) const;
  OpShape infer(const Op& op) const;
  void bind_attrs(Op& op, std::span<const AttrValue> attrs) const;
  Id place(Op op, Id before);
  Value output_value(const Op& op, std::size_t index, const OperandShape& shape) const;
  void declare_inputs();
  AxisId placed_axis(std::string_view name) const;
  AxisPlacement placement_of(const Lies& lies, AxisId axis, const Value& value) const;
  Id original_of(const Value& state, Id like) const;
  void lay(Value& state, const KeptState& described) const;

  std::shared_ptr<const OpRegistry> registry_;
  Precision precision_;
  ModelContext context_;
  Mesh mesh_;
  std::vector<RecipeSize> recipe_sizes_;
  Requests requests_;
  std::shared_ptr<const KeptForeignWeights> foreign_weights_;
  std::vector<LowRankChange> low_ranks_;
  std::optional<std::int32_t> shown_;
  std::string writer_;
  Edits edits_, checked_edits_;
  bool placed_ = false;
  bool shapes_are_settled_ = false;
  StepContext step_context_;
  ShownProgram shown_program_;
  FlatParameters flat_parameters_;
  Delays delays_;
  Numbered<Bucket> buckets_;
  std::vector<CarriedValue> carried_;
  // References to these stay valid as others are added.
  std::deque<Value> values_;
  std::deque<Op> ops_;
  std::deque<SegmentData> segments_;
  std::set<Id> shares_;
};

// Says whether ranks keep their parts of a bucket's parameters alone, and gather all before each use.
inline bool gathers_parameters(const Program& program, const Bucket& bucket) {
  return program.value(bucket.own_parameters).role == Role::state;
}
// Says whether ranks sum a bucket's gradients into the parts that they keep, whose whole then makes room.
inline bool keeps_summed_parts(const Program& program, const Bucket& bucket) {
  return bucket.all_gradients != none &&
         program.value(bucket.all_gradients).lifetime == ValueLifetime::unreduced;
}

// Returns the placement of a flat buffer of which the ranks of an axis, or of several together, have a shard
// each.
std::vector<AxisPlacement> shards_over(const Program& program, AxisId axis);

// Returns an axis as an op's attribute: a number.
inline AttrValue axis_attr(AxisId axis) { return {"axis", static_cast<double>(axis)}; }

// Returns the table of out-of-line calls that plugins edit a program through; the handle is a Program*.
const ProgramApi& program_api();

}  // namespace prun
