#include "placement/pack.hpp"

#include <map>
#include <set>
#include <span>

#include "ops/base_ops.hpp"
#include "placement/bucket_groups.hpp"
#include "placement/pack_whole.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------ bucket values

// Adds the values of a bucket: its flat parameters and gradients, a rank's shard of each, and the optimizer
// state of the shard.
class BucketValues {
 public:
  // The bucket is the program's next. `summands`: how many contributions of updates are summed (1-bit Adam),
  // otherwise 1.
  BucketValues(const Packing& packing, PackedBucket& bucket, std::int64_t summands)
      : packing_(packing),
        program_(packing.program),
        bucket_(bucket),
        number_(static_cast<std::int32_t>(packing.program.buckets().size())),
        summands_(summands) {}

  // Lays members out one after another, each aligned to bucket_grain. If codes are gathered in their place,
  // each member has room for these.
  void lay_side_by_side(const std::vector<Id>& members, bool gathers_codes);

  void add_parameters();
  // Adds the codes that are gathered in place of parameters, whose gathered values get no memory.
  void add_codes();
  // Adds gradients and optimizer state.
  void add_state();
  // Removes the members' separate state. State of another shape stays: it is not sharded.
  void forget_single_state();

 private:
  Id add_flat(const char* name, Role role, DType type, bool own);
  // Adds a rank's shard: a buffer (`kept`) or a view into the full value.
  Id add_own(const char* name, Id whole, bool kept);
  void lay_in_rows();
  Id add_scales(const Value& parameter, Id of_one);
  void add_padding();

  const Packing& packing_;
  Program& program_;
  PackedBucket& bucket_;
  const std::int32_t number_;
  const std::int64_t summands_;
};

void BucketValues::lay_side_by_side(const std::vector<Id>& members, bool gathers_codes) {
  const auto rounded = [](std::int64_t elements, std::int64_t grain) {
    return (elements + grain - 1) / grain * grain;
  };
  for (const Id id : members) {
    bucket_.parameters.push_back(id);
    bucket_.offsets.push_back(bucket_.elements);
    const std::int64_t room =
        gathers_codes ? program_.local_bytes(program_.requests().gathered_codes.of.at(id)) : 0;
    bucket_.elements += rounded(std::max(program_.local_elements(id), room), bucket_grain);
  }
  bucket_.elements = rounded(bucket_.elements, std::max(packing_.parts(bucket_), summands_) * bucket_grain);
}

Id BucketValues::add_flat(const char* name, Role role, DType type, bool own) {
  const std::int64_t parts = packing_.parts(bucket_);
  Value value;
  value.name = detail::concat("bucket.", number_, ".", name);
  value.role = role;
  value.dtype = type;
  value.segment = bucket_.segment;
  value.bucket = number_;
  value.dims = own || parts == 1 ? std::vector<Dim>{{"packed", bucket_.elements}}
                                 : std::vector<Dim>{{"parts", parts}, {"packed", bucket_.elements / parts}};
  value.placement =
      own ? shards_over(program_, bucket_.axis) : std::vector<AxisPlacement>(program_.mesh().size());
  return program_.add_value(std::move(value));
}

Id BucketValues::add_own(const char* name, Id whole, bool kept) {
  const Id own = add_flat(name, kept ? Role::state : Role::view, program_.value(whole).dtype, true);
  if (!kept) program_.value(own).view = {whole, 0, bucket_.axis};
  return own;
}

void BucketValues::add_parameters() {
  bucket_.all_parameters = add_flat("parameters", Role::view, program_.precision().compute, false);
  program_.value(bucket_.all_parameters).lifetime =
      bucket_.kept.parameters ? ValueLifetime::just_in_time : ValueLifetime::persistent;
  if (bucket_.across) {  // each use gathers from the secondary copy
    const std::int64_t shards = program_.mesh().extent(*bucket_.across);
    program_.value(bucket_.all_parameters).dims = {{"parts", shards}, {"packed", bucket_.elements / shards}};
  }
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    Value& member = program_.value(bucket_.parameters[m]);
    member.bucket = number_;
    member.view = {bucket_.all_parameters, bucket_.offsets[m]};
  }
  bucket_.own_parameters = add_own("parameters.own", bucket_.all_parameters, bucket_.kept.parameters);
}

void BucketValues::add_codes() {
  const auto like = [&](Id whole, const char* name, Role role, ValueLifetime lifetime) {
    Value codes = program_.value(whole);
    codes.name = detail::concat("bucket.", codes.bucket, ".", name);
    codes.role = role;
    codes.dtype = DType::u8;
    codes.view.reset();
    codes.lifetime = lifetime;
    return program_.add_value(std::move(codes));
  };
  program_.value(bucket_.all_parameters).lifetime.reset();
  bucket_.own_codes = like(bucket_.own_parameters, "codes.own", Role::fetched, ValueLifetime::persistent);
  bucket_.codes = like(bucket_.all_parameters, "codes", Role::view, ValueLifetime::just_in_time);
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    const Id codes = program_.requests().gathered_codes.of.at(bucket_.parameters[m]);
    Value& member = program_.value(codes);
    member.role = Role::view;
    member.bucket = number_;
    member.view = {bucket_.codes, bucket_.offsets[m]};
    bucket_.member_codes.push_back(codes);
    program_.value(bucket_.parameters[m]).view.reset();
  }
}

void BucketValues::add_state() {
  const Precision& precision = program_.precision();
  bucket_.all_gradients = add_flat("gradients", Role::view, precision.gradient, false);
  program_.value(bucket_.all_gradients).lifetime =
      bucket_.kept.gradients ? ValueLifetime::unreduced : ValueLifetime::step;
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    Value& gradient = program_.value(program_.value(bucket_.parameters[m]).gradient);
    gradient.bucket = number_;
    gradient.view = {bucket_.all_gradients, bucket_.offsets[m]};
  }
  bucket_.own_gradients = add_own("gradients.own", bucket_.all_gradients, bucket_.kept.gradients);
  if (bucket_.summed_in_update) lay_in_rows();
  if (packing_.kept.gradients && packing_.sums_as_they_are())
    bucket_.own_sums = add_own("sums.own", bucket_.all_gradients, false);
  add_padding();
  if (precision.has_master()) bucket_.master = add_flat("master", Role::state, precision.kept_master(), true);
  const Value first = program_.value(bucket_.parameters.front());
  for (const Id id : first.states) {
    const Value state = program_.value(id);
    const std::string name = state.name.substr(first.name.size() + 1);
    if (!state.own_shape) bucket_.states.push_back(add_flat(name.c_str(), Role::state, state.dtype, true));
  }
  for (const Id id : first.scales) bucket_.scales.push_back(id == none ? none : add_scales(first, id));
}

// Arranges gradients in one row for each rank's shard or, on a single rank, for each contribution.
void BucketValues::lay_in_rows() {
  for (const Id id : bucket_.parameters)  // gradients stay local: no rank sums them
    complete_sums(program_.value(program_.value(id).gradient).placement);
  const bool alone = program_.mesh().extent(*bucket_.summed_in_update) == 1;
  for (const Id id : {bucket_.all_gradients, bucket_.own_gradients}) {
    if (alone && id == bucket_.all_gradients && bucket_.kept.gradients) continue;
    program_.value(id).dims =
        alone ? std::vector<Dim>{{"summands", summands_}, {"packed", bucket_.elements}}
              : std::vector<Dim>{{"parts", summands_}, {"packed", bucket_.elements / summands_}};
  }
}

// One scale per block: shards and members start with a block.
Id BucketValues::add_scales(const Value& parameter, Id of_one) {
  const Value one = program_.value(of_one);
  const Id flat = add_flat(one.name.substr(parameter.name.size() + 1).c_str(), Role::state, one.dtype, true);
  program_.value(flat).dims.front().extent /= one.block;
  program_.value(flat).block = one.block;
  return flat;
}

void BucketValues::add_padding() {
  for (std::size_t m = 0; m < bucket_.parameters.size(); ++m) {
    const std::int64_t begin = bucket_.offsets[m] + program_.local_elements(bucket_.parameters[m]);
    const bool last = m + 1 == bucket_.parameters.size();
    const std::int64_t end = last ? bucket_.elements : bucket_.offsets[m + 1];
    if (begin == end) continue;
    Value padding = program_.value(bucket_.all_gradients);
    padding.name = detail::concat("bucket.", number_, ".padding.", m);
    padding.dims = {{"packed", end - begin}};
    padding.lifetime.reset();
    padding.view = {bucket_.all_gradients, begin};
    program_.add_value(std::move(padding));
  }
}

void BucketValues::forget_single_state() {
  const auto is_kept = [&](Id state) { return program_.value(state).own_shape; };
  for (const Id id : bucket_.parameters) {
    Value& parameter = program_.value(id);
    if (parameter.master != none) program_.forget_value(parameter.master);
    for (const Id state : parameter.states)
      if (!is_kept(state)) program_.forget_value(state);
    for (const Id scale : parameter.scales)
      if (scale != none) program_.forget_value(scale);
    parameter.master = none;
    std::erase_if(parameter.states, [&](Id state) { return !is_kept(state); });
  }
}

// ------------------------------------------------------------ packer

AxisInfo shown(const Mesh& mesh, std::optional<AxisId> axis) {
  return axis ? AxisInfo{static_cast<std::int64_t>(*axis), mesh.extent(*axis)} : AxisInfo{};
}

// Packs parameters into buckets, and replaces the values and ops of members by those of their bucket. For a
// sharded bucket it fills in a FlatParameter, from which a strategy writes the collectives.
class Packer {
 public:
  Packer(const Packing& packing, std::vector<AxisId> copy_axes)
      : packing_(packing), program_(packing.program), copy_axes_(std::move(copy_axes)) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment)
      for (const auto& [key, members] : BucketGroups(packing_).of(segment)) {
        PackedBucket bucket = begun_bucket(segment, key);
        const std::vector<AxisId> further = pack(bucket, members, key);
        if (!packing_.sums_in_update()) show(bucket, further);
      }
    if (packing_.is_alone() || packing_.sums_in_update()) return;
    check_shared_out();
    sum_over_parts(FunctionKind::finish, norms_);
    sum_over_parts(FunctionKind::report, counts_);
  }

 private:
  // Refuses a requested axis over which no bucket is sharded.
  void check_shared_out() const {
    for (const AxisId axis : packing_.axes)
      if (std::none_of(program_.buckets().begin(), program_.buckets().end(),
                       [&](const Bucket& bucket) { return is_over(bucket, axis); }))
        throw_error(ErrorCode::unsupported, "cannot shard state over axis '", program_.mesh().name(axis),
                    "': it sums no gradient; name the axis of strategy data");
  }

  // Returns the further axes over which the shard must be summed.
  std::vector<AxisId> pack(PackedBucket& bucket, const std::vector<Id>& members, const BucketKey& key) {
    BucketValues values(packing_, bucket, summands_of(key.axis));
    values.lay_side_by_side(members, key.gathers_codes);
    values.add_parameters();
    if (bucket.kept.parameters && key.gathers_codes) values.add_codes();
    std::set<AxisId> further;
    if (program_.value(members.front()).gradient != none) {
      std::vector<Update> updates;
      updates.reserve(members.size());
      for (const Id id : members) updates.push_back(update_of(program_, id));
      further = SingleOps(packing_).remove(bucket);
      values.add_state();
      add_ops(bucket, key, updates);
      values.forget_single_state();
      for (const Update& update : updates)
        for (const Id op : update.ops) program_.erase_op(op);
    }
    program_.buckets().push_back(bucket);
    if (key.norm != none) norms_.insert({key.norm, key.axis});
    return {further.begin(), further.end()};
  }

  void show(const PackedBucket& bucket, const std::vector<AxisId>& further) const {
    FlatParameters& flat = program_.flat_parameters();
    std::vector<AxisInfo>& summed = flat.summed.emplace_back();
    for (const AxisId axis : further) summed.push_back(shown(program_.mesh(), axis));
    std::vector<Text>& axes = flat.axes.emplace_back();
    for (const AxisId axis : axes_of(bucket.axis)) axes.emplace_back(program_.mesh().axes()[axis].name);
    const std::vector<Id>& members = program_.buckets().back().parameters;
    const std::vector<std::int64_t>& offsets = program_.buckets().back().offsets;
    const std::vector<Id>& codes = flat.member_codes.emplace_back(bucket.member_codes);
    flat.list.push_back({.segment = bucket.segment,
                         .members = {members.data(), members.size()},
                         .offsets = {offsets.data(), offsets.size()},
                         .elements = bucket.elements,
                         .axes = {axes.data(), axes.size()},
                         .ranks = shown(program_.mesh(), bucket.axis),
                         .within = shown(program_.mesh(), bucket.within),
                         .across = shown(program_.mesh(), bucket.across),
                         .parameters = bucket.all_parameters,
                         .own_parameters = bucket.own_parameters,
                         .gradients = bucket.all_gradients,
                         .own_gradients = bucket.own_gradients,
                         .own_sum = bucket.own_sums,
                         .codes = bucket.codes,
                         .own_codes = bucket.own_codes,
                         .member_codes = {codes.data(), codes.size()},
                         .shards_gradients = bucket.kept.gradients,
                         .shards_parameters = bucket.kept.parameters,
                         .quantized = bucket.coded,
                         .summed = {summed.data(), summed.size()}});
  }

  PackedBucket begun_bucket(Id segment, const BucketKey& key) const {
    PackedBucket bucket;
    bucket.segment = segment;
    bucket.axis = packing_.sums_in_update() ? folded({}) : key.axis;
    bucket.coded = key.travels == Travels::in_codes;
    bucket.kept = packing_.kept;
    if (packing_.sums_in_update()) {
      bucket.summed_in_update = key.axis;
      // A single rank keeps each microbatch's gradients.
      bucket.kept.gradients = program_.mesh().extent(key.axis) == 1 && packing_.microbatches > 1;
    }
    bucket.kept.parameters &= !packing_.is_alone() || program_.precision().gather_bits > 0;
    if (bucket.kept.parameters) find_copy(bucket);
    return bucket;
  }

  // Splits the bucket's axes: `within` those of a secondary copy, over `across` the copy is refreshed.
  void find_copy(PackedBucket& bucket) const {
    std::vector<AxisId> within, across;
    for (const AxisId axis : axes_of(bucket.axis)) {
      const bool copied = std::find(copy_axes_.begin(), copy_axes_.end(), axis) != copy_axes_.end();
      (copied ? within : across).push_back(axis);
    }
    if (within.empty() || across.empty()) return;
    bucket.within = folded(within);
    bucket.across = folded(across);
  }

  // Returns the number of contributions: one per rank or, on a single rank, per microbatch.
  std::int64_t summands_of(AxisId axis) const {
    if (!packing_.sums_in_update()) return 1;
    const std::int64_t ranks = program_.mesh().extent(axis);
    return ranks > 1 ? ranks : packing_.microbatches;
  }

  // ------------------------------------------------------------- ops

  void add(const Bucket& bucket, FunctionKind function, const char* kind, std::vector<Id> operands) {
    program_.add_op(bucket.segment, function, Part::input, kind, std::move(operands), {});
  }

  void add_ops(const PackedBucket& bucket, const BucketKey& key, std::span<const Update> updates) {
    add_zeros(bucket);
    if (key.norm != none)
      add(bucket, FunctionKind::norm,
          packing_.sums_in_update() ? base_ops::summand_squares : base_ops::sum_squares,
          {bucket.own_gradients, key.norm});
    redirect_diagnosis(bucket, summands_of(key.axis));
    if (packing_.optimizer_of(program_.value(bucket.parameters.front())).updates_whole())
      return pack_whole_updates(program_, bucket, updates, loads_);
    add_update(bucket);
    if (packing_.sums_in_update()) return sum_what_it_makes(bucket, summands_of(key.axis), updates.front());
    carry_edits(program_, bucket.parameters.front(), updates.front(), update_of(program_, bucket));
    split_what_it_makes(bucket);
  }

  void sum_what_it_makes(const PackedBucket& bucket, std::int64_t summands, const Update& edited) {
    carry_attributes(program_, bucket.parameters.front(), edited, update_of(program_, bucket));
    const auto number = static_cast<std::int32_t>(program_.buckets().size());
    SummandExchanges(program_, bucket, number, summands).insert();
    if (bucket.kept.gradients)
      add(bucket, FunctionKind::reduce, base_ops::keep_summand, {bucket.all_gradients, bucket.own_gradients});
  }

  // Marks that intermediate values of the update have the length of a shard.
  void split_what_it_makes(const Bucket& bucket) {
    const Value& own = program_.value(bucket.own_parameters);
    for (Id op : program_.segment(bucket.segment).ops(FunctionKind::update))
      for (Id operand : program_.op(op).operands)
        if (operand != none && program_.value(operand).role == Role::activation &&
            program_.value(operand).dims == own.dims)
          program_.value(operand).placement = own.placement;
  }

  // Makes each op that counts a gradient's non-finite numbers read its stretch of the shard.
  void redirect_diagnosis(const PackedBucket& bucket, std::int64_t summands) {
    for (const Id id : std::vector<Id>(program_.segment(bucket.segment).ops(FunctionKind::diagnose))) {
      const Op op = program_.op(id);
      for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
        const Id gradient = program_.value(bucket.parameters[m]).gradient;
        if (touched_by(program_, id, {gradient}) == none) continue;
        if (!op.is(base_ops::count_non_finite)) SingleOps(packing_).refuse(id, gradient);
        program_.replace_operand(id, 0, bucket.own_gradients);
        program_.set_attr(id, "first", static_cast<double>(bucket.offsets[m]));
        program_.set_attr(id, "elements", static_cast<double>(program_.local_elements(bucket.parameters[m])));
        counts_.insert({op.operands[2], bucket.axis});
        count_further_rows(bucket, id, bucket.offsets[m], summands);
      }
    }
  }

  // Counts in further rows too: a single rank has a row for each contribution.
  void count_further_rows(const PackedBucket& bucket, Id count, std::int64_t offset, std::int64_t summands) {
    const bool in_rows = bucket.summed_in_update && bucket.kept.gradients;
    for (std::int64_t row = 1; in_rows && row < summands; ++row) {
      const std::vector<Id> operands = program_.op(count).operands;
      const Id further = program_.add_copy(count, FunctionKind::diagnose, operands, none);
      program_.set_attr(further, "first", static_cast<double>(row * bucket.elements + offset));
    }
  }

  // Clears gradients at the start of a microbatch or a step. Padding stays zero unless its memory is shared.
  void add_zeros(const PackedBucket& bucket) {
    const bool kept = bucket.kept.gradients;
    const FunctionKind begins = kept ? FunctionKind::clear : FunctionKind::zero;
    for (Id id : bucket.parameters) add(bucket, begins, base_ops::zero, {program_.value(id).gradient});
    if (!kept) return;
    for (const Id padding : paddings(program_, bucket)) add(bucket, begins, base_ops::zero, {padding});
    add(bucket, FunctionKind::zero, base_ops::zero, {bucket.own_gradients});
  }

  void add_update(const Bucket& bucket) {
    UpdateContext context = update_context(program_, bucket.parameters.front());
    context.parameter = bucket.own_parameters;
    context.master = bucket.master;
    context.gradient = bucket.own_gradients;
    context.states = {bucket.states.data(), bucket.states.size()};
    context.scales = {bucket.scales.data(), bucket.scales.size()};
    const NamedOptimizer& optimizer = packing_.optimizer_of(program_.value(bucket.parameters.front()));
    write_update(program_, bucket.segment, optimizer, context);
  }

  using Sums = std::set<std::pair<Id, AxisId>>;

  // Norms and counts cover a rank's shard only: all-reduce them.
  void sum_over_parts(FunctionKind function, const Sums& sums) {
    const std::vector<Id>& ops = program_.segment(program_.step_segment()).ops(function);
    Id before = none;
    for (const auto& [sum, over] : sums) {
      PRUN_CHECK(sum != before, "'", program_.value(sum).name, "' is a sum over different axes");
      before = sum;
      const AttrValue axis = axis_attr(over);
      program_.add_op(program_.step_segment(), function, Part::input, base_ops::all_reduce_update, {sum},
                      std::span(&axis, 1), ops.empty() ? none : ops.front());
    }
  }

  const Packing& packing_;
  Program& program_;
  const std::vector<AxisId> copy_axes_;
  DealtLoads loads_;
  Sums norms_, counts_;
};

}  // namespace

void pack_state(Program& program, const Optimizers& optimizers, const ShardRequest& parts) {
  program.flat_parameters().shown = true;
  std::vector<AxisId> axes = parts.axes;
  std::erase_if(axes, [&](AxisId axis) { return program.mesh().extent(axis) == 1; });
  std::sort(axes.begin(), axes.end());
  const Precision& precision = program.precision();
  if (axes.empty() && ((precision.gather_bits > 0 && parts.parameters) || precision.reduce_bits > 0))
    axes = {parts.axes.front()};
  if (axes.empty()) return;
  Packing packing{program, optimizers, std::move(axes), {parts.gradients, parts.parameters}};
  packing.kept.gradients |= packing.is_alone() && precision.reduce_bits > 0;
  Packer(packing, parts.secondary).run();
}

namespace {

// Returns true if ranks of some axis have different sequences.
bool shares_batch(const Program& program) {
  const Value& input = program.value(program.inputs().front());
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1 && input.on(axis).is_sharded() &&
        input.on(axis).dim == input.dims.front().name)
      return true;
  return false;
}

// Refuses gradients that are summed once a step if each microbatch's are kept separately.
void check_kept_apart(const Program& program) {
  for (const Bucket& bucket : program.buckets())
    for (const Id id : program.segment(bucket.segment).ops(FunctionKind::reduce))
      if (const Op& op = program.op(id);
          bucket.summed_in_update && keeps_summed_parts(program, bucket) && op.exchange())
        throw_error(ErrorCode::unsupported, "cannot apply precision.reduce = \"1bit\": '",
                    program.value(op.operands.front()).name,
                    "' is summed once a step, and a rank without others to share the batch with has the "
                    "gradients of several microbatches; let a step have one microbatch, share the batch "
                    "(strategy data), or take another type, such as \"bf16\"");
}

}  // namespace

// Ranks that share the batch contribute once each, for all their microbatches. Otherwise each microbatch is
// one contribution.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches) {
  const std::size_t before = program.buckets().size();
  Packing packing{program, optimizers, {}, {}, shares_batch(program) ? 1 : microbatches};
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) packing.axes.push_back(axis);
  Packer(packing, {}).run();
  if (program.buckets().size() == before)
    throw_error(ErrorCode::unsupported, "cannot apply precision.reduce = \"1bit\": no parameter has ",
                code_least, " elements in blocks of ", code_block,
                " and an optimizer whose result ranks sum in place of the gradient; take another type, such "
                "as \"bf16\"");
  check_kept_apart(program);
}

}  // namespace prun
