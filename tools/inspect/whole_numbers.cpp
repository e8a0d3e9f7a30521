#include "inspect/whole_numbers.hpp"

#include <algorithm>
#include <set>

#include "base/text.hpp"

namespace prun {
namespace {

bool is_whole(DType type) {
  return type == DType::i32 || type == DType::i64 || type == DType::u8 || type == DType::u16;
}

std::int64_t number(const std::byte* bytes, DType type, std::int64_t i) {
  if (type == DType::i32) return reinterpret_cast<const std::int32_t*>(bytes)[i];
  if (type == DType::i64) return reinterpret_cast<const std::int64_t*>(bytes)[i];
  if (type == DType::u16) return reinterpret_cast<const std::uint16_t*>(bytes)[i];
  return std::to_integer<std::int64_t>(bytes[i]);
}

std::string called(const Program& program, Id id) {
  const Value& value = program.value(id);
  return value.role == Role::runtime ? value.name : program.segment(value.segment).name + "." + value.name;
}

bool can_be_named(const Value& value) {
  return is_whole(value.dtype) && (value.role == Role::activation || value.role == Role::runtime);
}

bool is_incomplete(const Value& value) {
  return std::any_of(value.placement.begin(), value.placement.end(),
                     [](const AxisPlacement& lies) { return lies.is_incomplete(); });
}

// Values of one name are told apart by their place among them in forward, which layouts do not change.
std::map<Id, int> numbered(const Program& program) {
  std::map<Id, int> numbers;
  std::map<std::string, int> next;
  for (Id segment = 0; segment < program.segment_count(); ++segment)
    for (const Id op : program.segment(segment).ops(FunctionKind::forward))
      for (std::size_t i = 0; i < program.op(op).operands.size(); ++i)
        if (const Id id = program.op(op).operands[i];
            id != none && program.op(op).access(i) == Access::write && can_be_named(program.value(id)) &&
            program.value(id).role == Role::activation)
          numbers[id] = next[called(program, id)]++;
  return numbers;
}

std::vector<std::string> names_of(const Program& program, const std::map<Id, int>& numbers) {
  std::set<std::string> names;
  for (const auto& [id, place] : numbers) names.insert(called(program, id));
  for (const Id id : program.runtimes())
    if (can_be_named(program.value(id))) names.insert(called(program, id));
  return {names.begin(), names.end()};
}

// Returns the place, in the value of one rank, of element `at` of a value whose sequence has another order.
std::int64_t in_order(const Program& program, const Value& value, std::int64_t at) {
  const SequenceOrder order = program.requests().sequence_order;
  if (!order.permutes()) return at;
  const Name seq = program.value(program.inputs().front()).dims[1].name;  // that of the tokens
  std::int64_t inner = 1;
  for (std::size_t d = value.dims.size(); d-- > 0; inner *= value.dims[d].extent) {
    if (value.dims[d].name != seq) continue;
    const std::int64_t place = at / inner % value.dims[d].extent;
    return at + (order.position(place) - place) * inner;
  }
  return at;
}

}  // namespace

WholeNumberProbe::WholeNumberProbe(const Assembly& assembly, std::vector<std::string> patterns)
    : assembly_(assembly), patterns_(std::move(patterns)), number_of_(numbered(assembly.unlowered())) {
  if (patterns_.empty()) return;
  if (assembly.device_info().asynchronous)
    throw_error(ErrorCode::bad_input, "cannot compare exact numbers on device '",
                assembly.device_info().name.view(),
                "': it runs work later, and they are taken as kernels end; use one that blocks "
                "(device.plugin), whose layouts are the same");
  const std::vector<std::string> names = names_of(assembly.unlowered(), number_of_);
  for (const std::string& pattern : patterns_)
    if (std::none_of(names.begin(), names.end(), [&](const auto& name) { return glob_match(pattern, name); }))
      throw_error(ErrorCode::bad_input, "no value of whole numbers is called '", pattern, "'",
                  did_you_mean(pattern, names), "; there ",
                  names.empty() ? "are none" : "are: ", join(names, ", "));
}

bool WholeNumberProbe::is_named(Id id) const {
  const std::string name = called(assembly_.program(), id);
  return std::any_of(patterns_.begin(), patterns_.end(),
                     [&](const std::string& pattern) { return glob_match(pattern, name); });
}

void WholeNumberProbe::begin_call(std::int32_t, const Call&, std::int64_t step, double) noexcept {
  if (step > 0) done_ = true;
}

void WholeNumberProbe::end_kernel(std::int32_t, const Call& call, std::size_t index, double) noexcept {
  const Plan& plan = assembly_.plan();
  if (!memory_ || done_ || plan.functions[call.function].kind != FunctionKind::forward) return;
  try {
    note(call, plan.steps(call)[index]);
  } catch (const std::exception& error) {
    failed_ = error.what();
  }
}

void WholeNumberProbe::note(const Call& call, const PlannedStep& step) {
  if (step.op == none) return;
  const Program& program = assembly_.program();
  const Op& op = program.op(step.op);
  for (std::size_t i = 0; i < op.operands.size(); ++i) {
    const Id id = op.operands[i];
    if (id == none || op.access(i) != Access::write || number_of_.count(id) == 0) continue;
    if (is_incomplete(program.value(id)) || !is_named(id)) continue;
    const std::int64_t layer = assembly_.plan().instances[call.instance].layer;
    const Value& value = program.value(id);
    const std::string of_layer =
        program.segment(value.segment).repeat > 1 ? detail::concat(".", layer) : std::string();
    const int place = number_of_.at(id);
    keep(detail::concat(program.segment(value.segment).name, of_layer, ".", value.name,
                        place > 0 ? detail::concat(" (", place + 1, ")") : "", ", microbatch ",
                        call.microbatch),
         id, call, step.operands[i].address);
  }
}

void WholeNumberProbe::keep(const std::string& name, Id id, const Call& call, const Address& address) {
  const Program& program = assembly_.program();
  const std::byte* const bytes = memory_->at(assembly_.plan().resolve(call, address, 0));
  const Value& value = program.value(id);
  WholeNumbers own;
  for (const Stretch& run : stretches(slice_of(program, id, assembly_.rank())))
    for (std::int64_t i = 0; i < run.count; ++i) {
      own.at.push_back(in_order(program, value, run.whole + i));
      own.numbers.push_back(number(bytes, value.dtype, run.part + i));
    }
  written_[name] = std::move(own);
}

WrittenNumbers WholeNumberProbe::take() {
  if (!failed_.empty()) throw_error(ErrorCode::internal, failed_);
  for (const Id id : assembly_.program().runtimes())
    if (can_be_named(assembly_.program().value(id)) && is_named(id))
      keep(assembly_.program().value(id).name, id, Call(), assembly_.plan().home(id));
  return std::move(written_);
}

UnequalNumbers unequal(const WrittenNumbers& whole, const WrittenNumbers& own) {
  UnequalNumbers found;
  const auto differ = [&](const std::string& where) {
    if (found.count++ == 0) found.where = where;
  };
  for (const auto& [name, mine] : own) {
    const auto right = whole.find(name);
    if (right == whole.end()) {
      differ(name + ", which one rank does not write");
      continue;
    }
    for (std::size_t i = 0; i < mine.numbers.size(); ++i) {
      const auto at = static_cast<std::size_t>(mine.at[i]);
      if (at >= right->second.numbers.size() || right->second.numbers[at] != mine.numbers[i])
        differ(detail::concat(name, ", element ", at));
    }
  }
  return found;
}

}  // namespace prun
