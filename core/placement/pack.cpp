#include "placement/pack.hpp"

#include <set>

#include "placement/bucket_groups.hpp"
#include "placement/bucket_values.hpp"
#include "placement/coded_exchanges.hpp"
#include "placement/gradient_exchanges.hpp"
#include "placement/pack_whole.hpp"
#include "placement/parameter_gathers.hpp"
#include "placement/single_ops.hpp"
#include "placement/summand_exchanges.hpp"
#include "prun/block_codes.hpp"

namespace prun {
namespace {

// Groups the parameters of each segment into buckets, and puts a bucket's values, ops and exchanges in place
// of those of its members.
class Packer {
 public:
  Packer(const Packing& packing, std::vector<AxisId> copy_axes)
      : packing_(packing), program_(packing.program), gathers_(packing.program, std::move(copy_axes)) {}

  void run() {
    for (Id segment = program_.step_segment() + 1; segment < program_.segment_count(); ++segment) {
      std::vector<SummedBucket> summed;
      for (const auto& [key, members] : BucketGroups(packing_).of(segment)) {
        PackedBucket bucket = begun_bucket(segment, key);
        const std::vector<AxisId> further = pack(bucket, members, key);
        if (bucket.all_gradients != none) summed.push_back({std::move(bucket), further});
      }
      if (!packing_.sums_in_update()) GradientExchanges(packing_).add(summed);
    }
    if (packing_.is_alone() || packing_.sums_in_update()) return;
    check_shared_out();
    sum_over_parts(FunctionKind::finish, norms_);
    sum_over_parts(FunctionKind::report, counts_);
  }

 private:
  // Refuses an axis that is named in the request and shares out nothing.
  void check_shared_out() const {
    for (const AxisId axis : packing_.axes)
      if (std::none_of(program_.buckets().begin(), program_.buckets().end(),
                       [&](const Bucket& bucket) { return is_over(bucket, axis); }))
        throw_error(ErrorCode::unsupported, "axis '", program_.mesh().name(axis),
                    "' sums no gradient, so that no state can be kept in parts over it; name the axis of "
                    "strategy data");
  }

  // Returns the further axes over which the bucket's sum is to be taken.
  std::vector<AxisId> pack(PackedBucket& bucket, const std::vector<Id>& members, const BucketKey& key) {
    BucketValues values(packing_, bucket, summands_of(key.axis));
    values.lay_side_by_side(members, key.in_squares);
    values.add_parameters();
    if (bucket.kept.parameters) gathers_.add(bucket, travels(bucket, key));
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

  Gathered travels(const Bucket& bucket, const BucketKey& key) const {
    if (key.in_squares) return Gathered::in_squares;
    return bucket.coded && program_.precision().gather_bits > 0 ? Gathered::in_codes : Gathered::as_they_are;
  }

  PackedBucket begun_bucket(Id segment, const BucketKey& key) const {
    PackedBucket bucket;
    bucket.segment = segment;
    bucket.axis = packing_.sums_in_update() ? folded({}) : key.axis;
    bucket.coded = key.travels == Travels::in_codes;
    bucket.kept = packing_.kept;
    if (packing_.sums_in_update()) {
      bucket.summed_in_update = key.axis;
      // A rank alone holds microbatches one by one.
      bucket.kept.gradients = program_.mesh().extent(key.axis) == 1 && packing_.microbatches > 1;
    }
    bucket.kept.parameters &= !packing_.is_alone() || program_.precision().gather_bits > 0;
    return bucket;
  }

  // Returns how many results updates make: one of each rank or, on a rank alone, of each microbatch.
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
      add(bucket, FunctionKind::norm, packing_.sums_in_update() ? "summand_squares" : "sum_squares",
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
      add(bucket, FunctionKind::reduce, "keep_summand", {bucket.all_gradients, bucket.own_gradients});
  }

  // Says that what the ops of an update hand to each other is as long as a rank's part.
  void split_what_it_makes(const Bucket& bucket) {
    const Value& own = program_.value(bucket.own_parameters);
    for (Id op : program_.segment(bucket.segment).ops(FunctionKind::update))
      for (Id operand : program_.op(op).operands)
        if (operand != none && program_.value(operand).role == Role::activation &&
            program_.value(operand).dims == own.dims)
          program_.value(operand).placement = own.placement;
  }

  // Has each op that searched a gradient search its stretch of the own part.
  void redirect_diagnosis(const PackedBucket& bucket, std::int64_t summands) {
    for (const Id id : std::vector<Id>(program_.segment(bucket.segment).ops(FunctionKind::diagnose))) {
      const Op op = program_.op(id);
      for (std::size_t m = 0; m < bucket.parameters.size(); ++m) {
        const Id gradient = program_.value(bucket.parameters[m]).gradient;
        if (touched_by(program_, id, {gradient}) == none) continue;
        if (op.kind() != "count_non_finite") SingleOps(packing_).refuse(id, gradient);
        program_.replace_operand(id, 0, bucket.own_gradients);
        program_.set_attr(id, "first", static_cast<double>(bucket.offsets[m]));
        program_.set_attr(id, "elements", static_cast<double>(program_.local_elements(bucket.parameters[m])));
        counts_.insert({op.operands[2], bucket.axis});
        count_further_rows(bucket, id, bucket.offsets[m], summands);
      }
    }
  }

  // Adds a count for each further row: a rank alone that holds several summands has a row for each.
  void count_further_rows(const PackedBucket& bucket, Id count, std::int64_t offset, std::int64_t summands) {
    const bool in_rows = bucket.summed_in_update && bucket.kept.gradients;
    for (std::int64_t row = 1; in_rows && row < summands; ++row) {
      const std::vector<Id> operands = program_.op(count).operands;
      const Id further = program_.add_copy(count, FunctionKind::diagnose, operands, none);
      program_.set_attr(further, "first", static_cast<double>(row * bucket.elements + offset));
    }
  }

  // Clears sums. Padding stays zero if it is in no other value's memory meanwhile: all that is ever written
  // to it is the ranks' sum of it.
  void add_zeros(const PackedBucket& bucket) {
    const bool kept = bucket.kept.gradients;
    const FunctionKind begins = kept ? FunctionKind::clear : FunctionKind::zero;
    for (Id id : bucket.parameters) add(bucket, begins, "zero", {program_.value(id).gradient});
    if (!kept) return;
    for (const Id padding : paddings(program_, bucket)) add(bucket, begins, "zero", {padding});
    add(bucket, FunctionKind::zero, "zero", {bucket.own_gradients});
  }

  void add_update(const Bucket& bucket) {
    UpdateContext context = update_context(program_, bucket.parameters.front());
    context.parameter = bucket.own_parameters;
    context.master = bucket.master;
    context.gradient = bucket.own_gradients;
    context.states = {bucket.states.data(), bucket.states.size()};
    context.scales = {bucket.scales.data(), bucket.scales.size()};
    const NamedOptimizer& optimizer = packing_.optimizer_of(program_.value(bucket.parameters.front()));
    raise(optimizer.plugin->update(&program_api(), &program_, bucket.segment, context));
  }

  using Sums = std::set<std::pair<Id, AxisId>>;

  // Sums over the parts, since each rank has the squares and counts of its parts only.
  void sum_over_parts(FunctionKind function, const Sums& sums) {
    const std::vector<Id>& ops = program_.segment(program_.step_segment()).ops(function);
    Id before = none;
    for (const auto& [sum, over] : sums) {
      PRUN_CHECK(sum != before, "'", program_.value(sum).name, "' is a sum over different axes");
      before = sum;
      const AttrValue axis = axis_attr(over);
      program_.add_op(program_.step_segment(), function, Part::input, "all_reduce_update", {sum},
                      std::span(&axis, 1), ops.empty() ? none : ops.front());
    }
  }

  const Packing& packing_;
  Program& program_;
  ParameterGathers gathers_;
  DealtLoads loads_;
  Sums norms_, counts_;
};

}  // namespace

void pack_state(Program& program, const Optimizers& optimizers, const PartsRequest& parts) {
  std::vector<AxisId> axes = parts.axes;
  std::erase_if(axes, [&](AxisId axis) { return program.mesh().extent(axis) == 1; });
  std::sort(axes.begin(), axes.end());
  const Precision& precision = program.precision();
  if (axes.empty() && ((precision.gather_bits > 0 && parts.kept.parameters) || precision.reduce_bits > 0))
    axes = {parts.axes.front()};
  if (axes.empty()) return;
  Packing packing{program, optimizers, std::move(axes), parts.kept};
  packing.kept.gradients |= packing.is_alone() && precision.reduce_bits > 0;
  Packer(packing, parts.copy_axes).run();
}

namespace {

// Says whether ranks of some axis have other sequences of a microbatch.
bool shares_batch(const Program& program) {
  const Value& input = program.value(program.inputs().front());
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1 && input.on(axis).is_sharded() &&
        input.on(axis).dim == input.dims.front().name)
      return true;
  return false;
}

// Refuses gradients that ranks sum once a step beside those of which a rank keeps each microbatch's.
void check_kept_apart(const Program& program) {
  for (const Bucket& bucket : program.buckets())
    for (const Id id : program.segment(bucket.segment).ops(FunctionKind::reduce))
      if (const Op& op = program.op(id);
          bucket.summed_in_update && keeps_summed_parts(program, bucket) && op.exchange())
        throw_error(ErrorCode::unsupported,
                    "precision.reduce is \"1bit\", and ranks that share no batch keep each microbatch's "
                    "gradients apart, and sum '",
                    program.value(op.operands.front()).name,
                    "' once a step; let a step have one microbatch, share the batch out (strategy data), or "
                    "take a type that numbers are summed in, such as \"bf16\"");
}

}  // namespace

// Ranks that share the batch out have a summand each, of all their microbatches; otherwise each microbatch is
// taken for a rank's.
void pack_summands(Program& program, const Optimizers& optimizers, std::int64_t microbatches) {
  const std::size_t before = program.buckets().size();
  Packing packing{program, optimizers, {}, {}, shares_batch(program) ? 1 : microbatches};
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis)
    if (program.mesh().extent(axis) > 1) packing.axes.push_back(axis);
  Packer(packing, {}).run();
  if (program.buckets().size() == before)
    throw_error(
        ErrorCode::unsupported, "precision.reduce is \"1bit\", and no parameter has ", code_least,
        " elements and more, in whole blocks of ", code_block,
        ", and an optimizer that ranks sum instead of its gradient; take a type that numbers are summed "
        "in, such as \"bf16\"");
  check_kept_apart(program);
}

}  // namespace prun
