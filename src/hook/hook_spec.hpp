// Parser of hook specs.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace hookline::hook {

/// A term of a spec: a name with its options.
struct SpecTerm {
  std::string name;
  std::map<std::string, std::string> options;
};

/// Parses a spec and returns its terms, innermost first. Grammar:
///   spec    = term { "|" term }
///   term    = name [ "(" [ option { "," option } ] ")" ]
///   option  = name "=" value        a value extends to the next "," or ")"; surrounding spaces are trimmed
/// Throws InvalidArgument with the position of a syntax error. `kind` is the kind of object described, for messages.
std::vector<SpecTerm> parse_hook_spec(std::string_view spec, std::string_view kind = "hook");

bool is_identifier(std::string_view text);

}  // namespace hookline::hook
