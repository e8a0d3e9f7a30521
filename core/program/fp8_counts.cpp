#include "program/fp8_counts.hpp"

#include <algorithm>
#include <array>

#include "ops/base_ops.hpp"
#include "program/fp8_factors.hpp"
#include "program/step.hpp"

namespace prun {
namespace {

constexpr const char *on_name = "fp8.counting", *counts_name = "fp8.counts", *peaks_name = "fp8.peaks";
constexpr std::int64_t numbers_each = 3;

// Adds the ops that count the factors of one segment.
class SegmentCounts {
 public:
  SegmentCounts(Program& program, Id segment, std::int64_t place)
      : program_(program), segment_(segment), place_(place) {
    for (const FunctionKind function : microbatch_functions)
      for (const Id op : program.segment(segment).ops(function))
        if (program.op(op).def->in_blocks && program.attr(op, "fp8") != 0) note(op, function);
  }

  // Returns the place behind the segment's.
  std::int64_t end() const {
    return place_ + static_cast<std::int64_t>(found_.size()) * program_.segment(segment_).repeat;
  }

  void add(Id on, Id counts, Id peaks) {
    std::int64_t place = place_;
    for (const Found& found : found_) {
      const auto attrs = attrs_of(found, place);
      for (const auto& [kind, into] :
           {std::pair(base_ops::count_fp8_codes, counts), {base_ops::peak_fp8_scales, peaks}})
        program_.add_op(segment_, found.function, Part::input, kind, {found.factor.value, on, into}, attrs,
                        behind(found));
      place += program_.segment(segment_).repeat;
    }
  }

 private:
  struct Found {
    Fp8Factor factor;
    FunctionKind function;
    Id last_reader;  // in that function
  };

  void note(Id op, FunctionKind function) {
    for (const Fp8Factor& factor : fp8_factors_of(program_, program_.op(op))) {
      // Where forward has it, the value need not be there for backward.
      for (Found& found : found_)
        if (found.factor.value == factor.value && found.function == function) found.last_reader = op;
      if (std::any_of(found_.begin(), found_.end(),
                      [&](const Found& found) { return key(found.factor) == key(factor); }))
        continue;
      const auto same = std::find_if(found_.begin(), found_.end(),
                                     [&](const Found& found) { return found.factor.value == factor.value; });
      found_.push_back(same == found_.end() ? Found{factor, function, op}
                                            : Found{factor, same->function, same->last_reader});
    }
  }

  std::array<AttrValue, 6> attrs_of(const Found& found, std::int64_t place) const {
    const auto same = [&](const char* name) {
      const Op& op = program_.op(found.last_reader);
      return AttrValue{name, op.has_attr(name) ? program_.attr(found.last_reader, name) : 0.0};
    };
    const double weight = found.factor.weight == none ? -1.0 : static_cast<double>(found.factor.weight);
    return {AttrValue{"in_dims", static_cast<double>(found.factor.in_dims)},
            same("fp8_from"),
            same("fp8_until"),
            AttrValue{"blocks", static_cast<double>(found.factor.blocks)},
            AttrValue{"place", static_cast<double>(place)},
            AttrValue{"weight", weight}};
  }

  // Counting comes behind products, which devices fuse with each other and with what is in front of them.
  Id behind(const Found& found) const {
    const std::vector<Id>& ops = program_.segment(segment_).ops(found.function);
    const auto next = std::find(ops.begin(), ops.end(), found.last_reader) + 1;
    return next == ops.end() ? none : *next;
  }

  Program& program_;
  const Id segment_;
  const std::int64_t place_;
  std::vector<Found> found_;
};

Id add_counts(Program& program, const char* name, std::int64_t places) {
  Value value;
  value.name = name;
  value.role = Role::runtime;
  value.dtype = DType::f64;
  value.dims = {{"place", places}, {"number", numbers_each}};
  value.segment = program.step_segment();
  const Id counts = program.add_value(std::move(value));
  program.add_op(program.step_segment(), FunctionKind::begin, Part::input, base_ops::zero, {counts}, {});
  return counts;
}

// Puts together what the ranks of all axes have counted, and reports it.
void add_total(Program& program, Id counts, const char* exchange) {
  const Id step = program.step_segment();
  for (AxisId axis = 0; axis < program.mesh().size(); ++axis) {
    const AttrValue on_axis = axis_attr(axis);
    if (program.mesh().extent(axis) > 1)
      program.add_op(step, FunctionKind::finish, Part::input, exchange, {counts}, std::span(&on_axis, 1));
  }
  Value whole = program.value(counts), reported = whole;
  whole.name += ".total";
  reported.name += ".reported";
  reported.role = Role::staging;
  const Id total = program.add_value(std::move(whole)), out = program.add_value(std::move(reported));
  program.add_op(step, FunctionKind::finish, Part::input, base_ops::total, {counts, total}, {});
  program.add_op(step, FunctionKind::report, Part::input, base_ops::copy, {total, out}, {});
}

std::string_view without(std::string_view name, std::string_view end) {
  return name.ends_with(end) ? name.substr(0, name.size() - end.size()) : name;
}

// Says what a product does with a factor. Where ranks gather an input again for backward, it is counted
// there.
const char* part_of(const Program& program, Id id) {
  const Op& op = program.op(id);
  if (program.value(op.operands.front()).role == Role::parameter) return "weight";
  switch (static_cast<Fp8Blocks>(program.attr(id, "blocks"))) {
    case Fp8Blocks::squares: return "input_for_weight";
    case Fp8Blocks::columns: return "gradient_for_weight";
    default: return op.function == FunctionKind::forward ? "input" : "gradient";
  }
}

// Names a factor: "block.fp8.attention.qkv.gradient_for_weight".
std::string name_of_factor(const Program& program, Id id) {
  const Op& op = program.op(id);
  const auto weight = static_cast<std::int64_t>(program.attr(id, "weight"));
  const Value& of = program.value(weight < 0 ? op.operands.front() : static_cast<Id>(weight));
  return detail::concat(program.segment(op.segment).name, ".fp8.", without(of.name, ".weight"), ".",
                        part_of(program, id));
}

Id staging_named(const Program& program, const std::string& name) {
  for (const Id id : program.segment(program.step_segment()).values)
    if (program.value(id).role == Role::staging && program.value(id).name == name) return id;
  return none;
}

}  // namespace

void count_in_fp8(Program& program) {
  std::vector<SegmentCounts> segments;
  std::int64_t places = 0;
  for (Id id = program.step_segment() + 1; id < program.segment_count(); ++id) {
    segments.emplace_back(program, id, places);
    places = segments.back().end();
  }
  if (places == 0) return;
  const Id on = add_staged_scalar(program, on_name, {}), counts = add_counts(program, counts_name, places),
           peaks = add_counts(program, peaks_name, places);
  for (SegmentCounts& segment : segments) segment.add(on, counts, peaks);
  add_total(program, counts, base_ops::all_reduce_update);
  add_total(program, peaks, base_ops::all_reduce_max_update);
}

std::vector<CountedFactor> counted_factors(const Program& program) {
  std::vector<CountedFactor> factors;
  for (Id segment = program.step_segment() + 1; segment < program.segment_count(); ++segment)
    for (const FunctionKind function : microbatch_functions)
      for (const Id id : program.segment(segment).ops(function))
        if (program.op(id).is(base_ops::count_fp8_codes))
          factors.push_back({name_of_factor(program, id),
                             static_cast<std::int64_t>(program.attr(id, "place")),
                             program.segment(segment).repeat});
  std::sort(factors.begin(), factors.end(),
            [](const CountedFactor& a, const CountedFactor& b) { return a.name < b.name; });
  return factors;
}

StagedFp8Counts staged_fp8_counts(const Program& program) {
  return {staging_named(program, std::string(on_name) + ".staged"),
          staging_named(program, std::string(counts_name) + ".reported"),
          staging_named(program, std::string(peaks_name) + ".reported")};
}

}  // namespace prun
