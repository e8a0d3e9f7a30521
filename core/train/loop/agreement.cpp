// Exchanges digests of everything first; only where those differ, what they were made of.
#include "train/loop/agreement.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "base/sha256.hpp"
#include "train/assemble/plugin_host.hpp"
#include "train/assemble/process_memory.hpp"

namespace prun {
namespace {

// ------------------------------------------------------------------- agreement

using Facts = Settings;

// Holds one thing that must be the same on all ranks.
struct Topic {
  std::string difference;  // text such as "have different plans"
  Facts facts;
  std::string remedy;
  std::string place = {};  // where this rank has it from, for messages only
};

Facts compared_settings(const Recipe& recipe) {
  Facts facts = settings_of(recipe);
  std::erase_if(facts, [](const auto& fact) { return belongs_to_a_place(fact.first); });
  return facts;
}

// Returns builds of plugins; observers are the first rank's alone.
Facts builds_of(const PluginHost& plugins) {
  Facts facts;
  for (const auto& [key, library] : plugins.loaded())
    if (library->note().kind != "observer")
      facts.emplace_back(library->note().kind + " plugin '" + library->note().name + "'", library->sha256());
  return facts;
}

Topic builds_topic(const PluginHost& plugins) {
  return {"run different builds of a plugin", builds_of(plugins),
          "install the same plugins on every host, or name their folders alike"};
}

// Makes the topic of arithmetic: ranks may have other devices, but none that gives other bits. A device
// states it as "key = value".
Topic arithmetic_topic(const std::vector<DeviceInfo>& devices) {
  Topic topic{"would compute other bits", {}, "give all ranks the same "};
  for (std::size_t number = 0; number < devices.size(); ++number) {
    const std::string_view text = devices[number].arithmetic.view();
    const std::size_t equals = text.find(" = ");
    if (equals == std::string_view::npos) continue;
    const std::string key = number == 0 ? detail::concat("device.", text.substr(0, equals))
                                        : detail::concat("'", text.substr(0, equals), "' of device ", number);
    topic.remedy += (topic.facts.empty() ? "" : " and ") + key;
    topic.facts.emplace_back(key, text.substr(equals + 3));
  }
  return topic;
}

// Makes the topic of devices: if the recipe leaves the device open, hosts may choose different ones.
Topic devices_topic(const Recipe& recipe) {
  return {"run on different devices",
          {{"device.plugin", recipe.section("device").plugin()}},
          "name one in the recipe, with device.plugin"};
}

// Makes the topic of what `auto` may have stood for: hosts with other cost tables settle it otherwise.
Topic open_settings_topic(const Recipe& recipe) {
  Topic topic{"settle `auto` in other ways", {}, "say in the recipe which it is"};
  const auto may_be_open = [](const recipe::Entry& entry) {
    const std::vector<std::string>& choices = entry.option.choices;
    return std::find(choices.begin(), choices.end(), automatic) != choices.end() &&
           !belongs_to_a_place(entry.path);
  };
  for (const RecipeSection& section : recipe.all_sections())
    for (const recipe::Entry& entry : section.entries())
      if (entry.value && may_be_open(entry))
        topic.facts.emplace_back(entry.path, recipe::to_toml(*entry.value));
  return topic;
}

Facts facts_of(const LoadedCheckpoint& loaded) {
  const Manifest& manifest = loaded.manifest;
  return {{"run", manifest.run.id},
          {"step", std::to_string(manifest.progress.step)},
          {"updates", std::to_string(manifest.progress.updates)},
          {"samples", std::to_string(manifest.progress.samples)},
          {"number of the save", std::to_string(manifest.save)},
          {"checksum", manifest_checksum(manifest)}};
}

// Digests samples from all over a set, the first and the last among them.
void add_facts(Facts& facts, const SampleSet& set, std::int64_t seq) {
  constexpr std::int64_t most_tokens = 1 << 22;  // a limit, so that long samples do not delay the start
  const std::int64_t most_samples = std::clamp<std::int64_t>(most_tokens / seq, 2, 8);
  const auto add = [&](const std::string& what, std::string value) {
    facts.emplace_back(what + " of " + set.name, std::move(value));
  };
  add("number of samples", std::to_string(set.info.samples));
  add("number of tokens", std::to_string(set.info.tokens));
  add("vocabulary", std::to_string(set.info.vocab));
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(seq)), targets(tokens.size());
  const std::int64_t count = std::min(set.info.samples, most_samples);
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t index = count == 1 ? 0 : i * (set.info.samples - 1) / (count - 1);
    raise(set.data->read(index, tokens.data(), targets.data()));
    Sha256 digest;
    digest.update(std::as_bytes(std::span(tokens)));
    digest.update(std::as_bytes(std::span(targets)));
    add("digest of sample " + std::to_string(index), digest.hex());
  }
}

Facts facts_of(const Samples& samples) {
  Facts facts;
  for (const SampleSet& set : samples.sets()) add_facts(facts, set, samples.seq());
  return facts;
}

// Writes "key = value" lines after one that says where they are from.
std::string to_text(const Topic& topic) {
  std::string text = topic.place + "\n";
  for (const auto& [key, value] : topic.facts) text += detail::concat(key, " = ", value, "\n");
  return text;
}

Topic read_topic(std::string_view text) {
  Topic topic;
  topic.place = text.substr(0, text.find('\n'));
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(text.size(), line.size() + 1));
    const std::size_t equals = line.find(" = ");
    if (equals != std::string_view::npos)
      topic.facts.emplace_back(line.substr(0, equals), line.substr(equals + 3));
  }
  return topic;
}

// Returns a text such as ": optimizer.lr is 0.003 on the one, 0.001 on the other", or an empty one if they
// are the same.
std::string first_difference(const Facts& mine, const Facts& theirs) {
  const auto value = [](const Facts& facts, const std::string& key) {
    const auto found =
        std::find_if(facts.begin(), facts.end(), [&](const auto& fact) { return fact.first == key; });
    return found == facts.end() ? std::string("not there") : found->second;
  };
  Facts all = mine;
  all.insert(all.end(), theirs.begin(), theirs.end());
  for (const auto& [key, ignored] : all)
    if (value(mine, key) != value(theirs, key))
      return detail::concat(": ", key, " is ", value(mine, key), " on the one, ", value(theirs, key),
                            " on the other");
  return {};
}

std::string in_brackets(const std::string& place) { return place.empty() ? "" : " (" + place + ")"; }

// Returns sixty-four digits for every topic.
std::string digests_of(const std::vector<Topic>& topics) {
  std::string digests;
  for (Topic topic : topics) {
    topic.place.clear();
    digests += sha256_hex(to_text(topic));
  }
  return digests;
}

// Compares topics. Every rank sees the same digests, so all of them go on to the second exchange or none.
void compare(std::string_view channel, const std::vector<int>& all, const std::vector<Topic>& topics,
             const Exchange& exchange) {
  constexpr std::size_t digits = 64;
  const std::vector<std::string> digests = exchange(channel, all, digests_of(topics));
  for (std::size_t i = 0; i < topics.size(); ++i) {
    const auto differs = [&](const std::string& other) {
      return other.compare(i * digits, digits, digests.front(), i * digits, digits) != 0;
    };
    const auto other = std::find_if(digests.begin(), digests.end(), differs);
    if (other == digests.end()) continue;
    const std::vector<std::string> texts =
        exchange(detail::concat(channel, " in detail"), all, to_text(topics[i]));
    const auto rank = static_cast<std::size_t>(other - digests.begin());
    const Topic first = read_topic(texts.front()), second = read_topic(texts[rank]);
    throw_error(ErrorCode::bad_input, "rank 0", in_brackets(first.place), " and rank ", rank,
                in_brackets(second.place), " ", topics[i].difference,
                first_difference(first.facts, second.facts), "; ", topics[i].remedy);
  }
}

// Refuses two ranks on one unit, which would share its memory and its time.
void check_units(const Assembly& assembly, const Exchange& exchange) {
  const std::vector<std::string> units =
      exchange("units", assembly.mesh().ranks(), assembly.device_info().unit.view());
  std::map<std::string, std::size_t> taken;
  for (std::size_t rank = 0; rank < units.size(); ++rank) {
    if (units[rank].empty()) continue;
    const auto [first, fresh] = taken.try_emplace(units[rank], rank);
    if (!fresh)
      throw_error(ErrorCode::bad_input, "cannot give ", units[rank], " to both ranks ", first->second,
                  " and ", rank,
                  "; start at most as many ranks on a host as it has devices, and let each rank see all of "
                  "them or only one");
  }
}

// Makes the topic of what is chosen to fit, which depends on the memory that a rank finds.
Topic fitting_topic(const Assembly& assembly) {
  Topic topic{"fit their plans into memory in other ways", {}, "say in the recipe what lies where"};
  for (const std::string& said : assembly.program().requests().said_to_fit)
    topic.facts.emplace_back("the choice", said);
  return topic;
}

// Makes the topic of the updates that a rank finds room for before the norm is known.
Topic speculation_topic(const Assembly& assembly) {
  Topic topic{"have room for different numbers of speculative updates",
              {},
              "set the same tier.cpu.host_gib on all, or speculate = \"none\" of offload"};
  std::string updates;
  for (const Plan& plan : assembly.plans()) updates += detail::concat(" ", plan.speculated());
  topic.facts.emplace_back("the number of them, by stage,", updates.substr(1));
  return topic;
}

}  // namespace

void check_agreement(const Assembly& assembly, const PluginHost& plugins, const Exchange& exchange) {
  Topic plans{"have different plans", compared_settings(assembly.recipe()),
              "start all ranks with the same recipe, the same --set and the same prun"};
  plans.facts.emplace_back("the plan's fingerprint", assembly.fingerprint());
  compare(
      "plan", assembly.mesh().ranks(),
      {devices_topic(assembly.recipe()), open_settings_topic(assembly.recipe()), fitting_topic(assembly),
       speculation_topic(assembly), arithmetic_topic(assembly.device_infos()), plans, builds_topic(plugins)},
      exchange);
  check_units(assembly, exchange);
}

void check_start(const Mesh& mesh, const PluginHost& plugins, const StartingPoint& start,
                 const Exchange& exchange) {
  Topic loaded{"go on from different checkpoints", {}, "give all ranks the files of one checkpoint"};
  if (start.loaded) {
    loaded.facts = facts_of(*start.loaded);
    loaded.place = start.loaded->folder.string();
  }
  Topic weights{"start from different weights", {}, "give all ranks the same files"};
  if (start.weights) weights.facts.emplace_back("digest", start.weights->digest());
  Topic data{"read different data", facts_of(start.samples), "give all ranks the same data"};
  if (start.validation)
    for (auto& fact : facts_of(*start.validation)) data.facts.push_back(std::move(fact));
  compare("start", mesh.ranks(), {builds_topic(plugins), loaded, weights, data}, exchange);
}

namespace {

// ------------------------------------------------------------------- membership

std::unique_ptr<Communicators> connect(const Assembly& assembly, PluginHost& plugins,
                                       const Membership& membership) {
  if (assembly.mesh().world() == 1 || membership.alone) return nullptr;
  PRUN_CHECK(membership.exchange, "a mesh of ", assembly.mesh().world(), " ranks, and no way to meet them");
  check_agreement(assembly, plugins, membership.exchange);
  return std::make_unique<Communicators>(CommMaking{
      assembly.mesh(), assembly.rank(),
      [&](std::int64_t rank) -> const Plan& { return assembly.plan_of(rank); }, *assembly.devices().front(),
      [&](const std::string& axis) { return comm_of_axis(assembly.recipe(), plugins, axis); },
      [&](const std::string& plugin) {
        return make_comm(assembly.recipe(), assembly.device_info(), plugins, plugin);
      },
      membership.exchange});
}

}  // namespace

std::vector<Probe*> probes_of(const Probes& probes, const Assembly& assembly, Communicators* communicators) {
  return probes ? probes(assembly, communicators) : std::vector<Probe*>{};
}

Announce announce_to_all(const Membership& membership, const Assembly& assembly) {
  if (!membership.exchange) return {};
  return [&membership, &assembly](std::string_view channel, std::string_view mine) {
    return membership.exchange(channel, assembly.mesh().ranks(), mine);
  };
}

Peers::Peers(const Assembly& assembly, PluginHost& plugins, const Membership& membership)
    : communicators_(connect(assembly, plugins, membership)) {
  if (communicators_ && membership.connected) lease_ = membership.connected(*communicators_);
}

}  // namespace prun
