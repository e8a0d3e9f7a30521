#include "nets/planned_text.hpp"

#include <map>
#include <regex>
#include <sstream>

#include "plan/plan.hpp"
#include "plan/proof/check_ranks.hpp"
#include "program/passes.hpp"

namespace prun::test {
namespace {

// Numbers of values change when a pass makes one earlier or later; what is computed does not.
std::string numbered_by_appearance(const std::string& text) {
  std::map<std::string, std::size_t> numbers;
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at + 1;
    while (text[at] == '%' && end < text.size() && text[end] >= '0' && text[end] <= '9') ++end;
    if (end == at + 1)
      out += text[at];
    else
      out +=
          '%' + std::to_string(numbers.try_emplace(text.substr(at, end - at), numbers.size()).first->second);
    at = end;
  }
  return out;
}

void write_plan(std::ostream& out, const Program& program, const Plan& plan) {
  out << "  fingerprint " << fingerprint(program, plan) << '\n';
  for (int i = 0; i < regions; ++i)
    if (const std::int64_t bytes = plan.layout.memory.bytes[static_cast<std::size_t>(i)]; bytes != 0)
      out << "  " << bytes << " bytes of " << name_of(static_cast<Region>(i)) << '\n';
  for (const Call& call : plan.calls) {
    out << "  " << plan.queues[call.queue].name << ": " << call_text(program, plan, call) << " piece "
        << call.piece << " slot " << call.slot;
    for (const Wait& wait : call.waits)
      out << ", waits for " << plan.queues[wait.queue].name << ' ' << wait.call
          << (wait.steps_ago ? " of a round before" : "");
    out << '\n';
  }
}

void write_plans(std::ostream& out, const char* of, const Program& program, std::span<const Plan> plans) {
  for (std::size_t stage = 0; stage < plans.size(); ++stage) {
    out << of << ", stage " << stage << '\n';
    write_plan(out, program, plans[stage]);
  }
}

}  // namespace

std::string planned_text(const Assembly& assembly) {
  std::ostringstream out;
  out << numbered_by_appearance(to_text(assembly.program()));
  write_plans(out, "plan", assembly.program(), assembly.plans());
  for (const StepPlans& ramp : assembly.other_steps())
    write_plans(out, "plan of a smaller step", assembly.program(), ramp.plans);
  if (const Program* evaluation = assembly.evaluation()) {
    out << "evaluation\n" << numbered_by_appearance(to_text(*evaluation));
    for (std::int64_t rank = 0; rank < assembly.mesh().world(); ++rank)
      if (rank == 0 || &assembly.evaluation_plan_of(rank) != &assembly.evaluation_plan_of(rank - 1))
        write_plans(out, "plan of evaluation", *evaluation, {&assembly.evaluation_plan_of(rank), 1});
  }
  return out.str();
}

}  // namespace prun::test
