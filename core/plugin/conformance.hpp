// `prun plugins check PATH`: whether a plugin keeps the contract of the plugin border. First what can be read
// from the file, then, in a child process, what it does when loaded.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "plugin/note.hpp"
#include "prun/options.hpp"

namespace prun {

// A section in which every option has its default.
struct DefaultOptions {
  OptionsApi api = {};
  std::shared_ptr<void> owner;        // keeps what api.section points to
  std::vector<std::string> required;  // options without a default: reading one is a failure Status
};
// Throws Error when the schema in the note is broken.
using DefaultOptionsFor = std::function<DefaultOptions(const PluginNote& note)>;

// A check of what plugins of one kind do, made by those who know the kind. It runs in the child, and gets an
// object made with default options; returns a detail worth saying, or throws Error.
struct KindCheck {
  std::string kind;
  std::string text;  // what is asked of the plugin
  std::function<std::string(void* object, const PluginNote& note)> run;
};

enum class CheckVerdict : std::uint8_t { not_run, passed, failed };

struct ContractCheck {
  int number = 0;
  std::string text;  // what is asked of the plugin
  CheckVerdict verdict = CheckVerdict::not_run;
  std::string detail;  // why it failed, or something worth saying
};

// "PRUN-PLG-006  passed   exports prun_plugin_v1 and nothing else"
std::string to_text(const ContractCheck& check);

// All checks in order of their numbers; the ones of its kind are the last. `limit`: for everything that runs
// the plugin's code.
std::vector<ContractCheck> check_plugin(const std::filesystem::path& path, const DefaultOptionsFor& defaults,
                                        std::chrono::milliseconds limit = std::chrono::seconds(60),
                                        const std::vector<KindCheck>& kind_checks = {});

bool conforms(const std::vector<ContractCheck>& checks);

}  // namespace prun
