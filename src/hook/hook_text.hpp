// Reads the text that describes a hook.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hookline::hook {

/// One name of a text, with its options.
struct HookPart {
  std::string name;
  std::map<std::string, std::string> options;
};

/// The parts, innermost first. The grammar:
///   text    = part { "|" part }
///   part    = name [ "(" [ option { "," option } ] ")" ]
///   option  = name "=" value        a value is everything up to "," or ")", without the spaces around it
/// Throws InvalidArgument naming the place where something else was expected. `what` the text is of, for these errors.
std::vector<HookPart> read_hook_text(std::string_view text, std::string_view what = "hook");

bool is_identifier(std::string_view text);

}  // namespace hookline::hook
