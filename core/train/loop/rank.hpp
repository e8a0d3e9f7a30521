// Runs one process of a run of many ranks: it ties the trainer to its session.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "launch/launcher.hpp"
#include "launch/rendezvous.hpp"
#include "train/loop/trainer.hpp"

namespace prun {

// Throws bad_input when the launcher started another number of ranks than the mesh has.
void check_world(const Identity& identity, const Recipe& recipe);

// Waits until all ranks that another launcher starts have come: what changes files waits for that.
void await_all_ranks(Session& session, const Recipe& recipe);

// Returns where a rank is among those of its host.
LocalPlace place_of(const Identity& rank);

// Returns the recipe with the device that this rank's launcher has chosen, if the recipe leaves it open; see
// ranks_of().
Recipe with_chosen_device(const Recipe& recipe, const Identity& rank);

// Returns the options of launch() with which each rank of a recipe runs this command on this host; `logs` is
// the folder for logs of the comm plugins' libraries. Throws if the ranks do not fit onto the host.
LaunchOptions ranks_of(const Assembly& assembly, PluginHost& plugins, const std::vector<std::string>& command,
                       const std::filesystem::path& logs);

// Runs body, whose result is the exit code. If it throws, the others are told why, and the code is the
// error's.
int end_as_rank(Session& session, const std::function<int()>& body);

// Calls body with what makes this process a rank of its session: the flight record follows the queues, and
// when another rank fails, communicators are aborted, which is what the error then says.
int with_membership(Session& session, const Recipe& recipe,
                    const std::function<int(const Membership& membership)>& body);

// Runs train() for this rank.
int train_rank(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
               Session& session);

// Does train() for the only rank; its flight record follows the queues.
int train_alone(const Assembly& assembly, PluginHost& plugins, const std::string& resume_command,
                FlightRecorder& flight);

}  // namespace prun
