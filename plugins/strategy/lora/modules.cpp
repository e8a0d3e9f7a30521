#include "modules.hpp"

#include <algorithm>

namespace prun {
namespace {

constexpr std::string_view everything = "all-linear", suffix = ".weight";

std::string without_suffix(std::string_view name) {
  return std::string(name.ends_with(suffix) ? name.substr(0, name.size() - suffix.size()) : name);
}

std::string last_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

// Matches as PEFT does: the whole path, or its end from a dot on.
bool names(const std::string& target, const std::string& path) {
  return target == path || path.ends_with("." + target);
}

}  // namespace

Modules::Modules(ProgramRef program, std::vector<std::string> targets)
    : program_(program), targets_(std::move(targets)) {}

std::vector<Module> Modules::of(Id weight) {
  std::vector<Module> chosen;
  for (Module& module : all_of(weight)) {
    known_.insert(last_of(module.path));
    if (is_asked_for(module)) chosen.push_back(std::move(module));
  }
  return chosen;
}

// A model without names of another library's weights has its own names for them.
std::vector<Module> Modules::all_of(Id weight) const {
  const ValueInfo info = program_.value(weight);
  const std::string own = without_suffix(info.name.view()),
                    segment(Segment(program_, info.segment).info().name.view()),
                    full = segment + "." + std::string(info.name.view());
  std::vector<Module> modules;
  for (const ForeignTensorView& tensor : program_.foreign_weights().tensors) {
    if (tensor.parameter.view() != full || !tensor.name.view().ends_with(suffix)) continue;
    const std::string path = without_suffix(tensor.name.view());
    // Parts that are one tensor there are one module: that of the whole weight.
    if (!modules.empty() && modules.back().path == path)
      modules.back().part = {};
    else
      modules.push_back(
          {own + "." + last_of(path), path, std::string(tensor.part.view()), tensor.begin, tensor.end});
  }
  if (modules.empty()) return {{own, segment + "." + own, "", 0, 0}};
  std::sort(modules.begin(), modules.end(),
            [](const Module& a, const Module& b) { return a.begin < b.begin; });
  return modules;
}

bool Modules::is_asked_for(const Module& module) {
  bool asked = false;
  for (const std::string& target : targets_) {
    if (target != everything && !names(target, module.path)) continue;
    found_.insert(target);
    asked = true;
  }
  return asked;
}

void Modules::check_all_found() const {
  std::string known;
  for (const std::string& name : known_) known += (known.empty() ? "" : ", ") + name;
  if (targets_.empty())
    throw_error(ErrorCode::bad_input, "targets is empty, so nothing would be trained; name some of ", known,
                ", or all-linear");
  for (const std::string& target : targets_) {
    if (found_.contains(target)) continue;
    const std::string all = "; those that can have an adapter are " + (known.empty() ? "none" : known);
    if (is_weight(target))
      throw_error(ErrorCode::bad_input, "targets: '", target,
                  "' is an expert, a router, a table or a norm, beside which there is no adapter", all);
    throw_error(ErrorCode::bad_input, "targets: no weight of the model is called '", target, "'", all);
  }
}

bool Modules::is_weight(const std::string& target) const {
  const Array<ForeignTensorView> tensors = program_.foreign_weights().tensors;
  return std::any_of(tensors.begin(), tensors.end(), [&](const ForeignTensorView& tensor) {
    return names(target, without_suffix(tensor.name.view()));
  });
}

}  // namespace prun
