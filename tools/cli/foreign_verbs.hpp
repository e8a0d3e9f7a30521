// Calls verbs of third parties: `prun VERB` runs an executable prun-VERB in a folder of PATH, as git does it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace prun {

// Returns the first prun-VERB on the path that may be executed. A verb is lower-case letters, digits and
// dashes, and none of prun's own.
std::optional<std::filesystem::path> foreign_verb(std::string_view verb);

// Returns all verbs that can be called so, in alphabetical order.
std::vector<std::string> foreign_verbs();

// Becomes that executable, where the first argument is such a verb and not a file here. It reads the words
// behind the verb itself, and finds the prun that called it in the environment, as PRUN.
void become_foreign_verb(int argc, char** argv);

}  // namespace prun
