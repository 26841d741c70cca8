# Completion of spikewatch(1) and spikewatchd(8) in bash. Commands and options are asked of the programs themselves (--help), so they
# are always those of the version that is installed.

# The options in what a program says for --help.
_spikewatch_options() {
	"$@" --help 2>/dev/null | grep -oE '^ +(-[a-zA-Z], )?--?[a-z][a-z-]*' | grep -oE -- '--?[a-zA-Z-]+'
	echo --help
}

# Where incidents are: -d of this command line, else as spikewatch list --help says.
_spikewatch_directory() {
	local i directory=$SPIKEWATCH_DIR state=$XDG_STATE_HOME

	[[ $state == /* ]] || state=~/.local/state
	if [[ -z $directory ]]; then
		directory=/var/lib/spikewatch/incidents
		[[ -r $directory ]] || directory=$state/spikewatch/incidents
	fi
	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-d | --directory) directory=${COMP_WORDS[i + 1]/#~\//$HOME/} ;;
		esac
	done
	echo "$directory"
}

# Names of incidents in a directory; unfinished ones are still called .tmp.
_spikewatch_ids() {
	local path name

	for path in "$1"/*Z-*-*-*/; do
		name=${path%/} name=${name##*/}
		[[ -d $path && $name != *.tmp ]] && echo "$name"
	done
}

# _spikewatch_offer WORDS WORD: those that begin with WORD.
_spikewatch_offer() {
	mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -W "$1" -- "$2")
}

# _spikewatch_files WORD [-d]: files, or directories only; the shell adds slashes and quotes.
_spikewatch_files() {
	compopt -o filenames 2>/dev/null
	mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen "${2:--f}" -- "$1")
}

# _spikewatch_value OPTION WORD: values of an option; fails if it has none. Times and sizes are for people to write.
_spikewatch_value() {
	case $1 in
	-f | --format)
		case ${COMP_WORDS[1]} in
		export) _spikewatch_offer 'csv json gvisor pprof folded firefox perfetto' "$2" ;;
		*) _spikewatch_offer 'spikewatch gvisor' "$2" ;;
		esac
		;;
	-p | --pid) _spikewatch_offer "$(cd /proc && echo [0-9]*)" "$2" ;;
	-o | --output | -c | --config | -s | --socket) _spikewatch_files "$2" ;;
	--directory | --proc-root | --cgroup-root) _spikewatch_files "$2" -d ;;
	--phase) _spikewatch_offer 'during before all' "$2" ;;
	--by) _spikewatch_offer 'cpu peak memory throttled incidents' "$2" ;;
	--sort) _spikewatch_offer 'cpu memory distance name' "$2" ;;
	--ring) _spikewatch_files "$2" ;;
	--filter | --count) ;;
	--what-if | --suggest | --as | --cpus | --memory) ;;
	--stacks) _spikewatch_offer 'dwarf frame-pointers off' "$2" ;;
	--comm) _spikewatch_offer "$(cat /proc/[0-9]*/comm 2>/dev/null | sort -u)" "$2" ;;
	--pgid) _spikewatch_offer "$(ps -e -o pgid= 2>/dev/null | sort -un)" "$2" ;;
	--cpu | --cpu-below | --memory | --threads | --fds | --spacing | --for | --after | -t | --timeout | --count) ;;
	-i | --interval | --duration | --ring-size | -n | --rows | --limit | --since | --until | -t | --target | -r | --rule | --max-file) ;;
	-b)
		[[ ${COMP_WORDS[1]} == history ]] || return 0
		_spikewatch_offer 'cpu peak memory throttled incidents' "$2"
		;;
	--keep | --max-size | --older-than | --before) ;;
	*) return 1 ;;
	esac
}

# The place of the first word that is neither an option of record or trap nor a value: COMMAND begins there. Nothing: there is none.
_spikewatch_recorded() {
	local i

	for ((i = 2; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		--) echo $((i + 1)) && return ;;
		-[fpoidnt] | --format | --pid | --output | --interval | --duration | --ring-size) ((i++)) ;;
		--comm | --pgid | --cpu | --cpu-below | --memory | --threads | --fds | --spacing) ((i++)) ;;
		--for | --after | --timeout | --count | --stacks) ((i++)) ;;
		-*) ;;
		*) echo $i && return ;;
		esac
	done
}

_spikewatch_record() {
	local begin

	begin=$(_spikewatch_recorded)
	if [[ -z $begin ]]; then
		_spikewatch_offer "$(_spikewatch_options "$1" "${COMP_WORDS[1]}") --" "$2"
	elif ((COMP_CWORD > begin)) && declare -F _command_offset >/dev/null; then
		_command_offset "$begin"
	elif ((COMP_CWORD > begin)); then
		_spikewatch_files "$2"
	else
		mapfile -t COMPREPLY < <(compgen -c -- "$2")
	fi
}

# _spikewatch_targets PROGRAM: names of targets and of their entries, as the running daemon says.
_spikewatch_targets() {
	"$1" status --json 2>/dev/null | sed -n 's/^ *"\(name\|entry\)": "\([^"\\ ]*\)",*$/\2/p' | sort -u
}

_spikewatch() {
	local command=${COMP_WORDS[1]} word=$2 before=$3 directory

	COMPREPLY=()
	if ((COMP_CWORD == 1)); then
		_spikewatch_offer "$("$1" --help 2>/dev/null | sed -n 's/^  \([a-z]*\)  .*/\1/p') --help --version" "$word"
		return
	fi
	case $command:$before in
	record:-d) return ;;
	status:-t | status:--target) _spikewatch_offer "$(_spikewatch_targets "$1")" "$word" && return ;;
	*:-d) _spikewatch_files "$word" -d && return ;;
	record:* | trap:*) [[ -z $(_spikewatch_recorded) ]] && _spikewatch_value "$before" "$word" && return ;;
	*) _spikewatch_value "$before" "$word" && return ;;
	esac

	directory=$(_spikewatch_directory)
	case $command:$word in
	record:* | trap:*) _spikewatch_record "$1" "$word" ;;
	trigger:[!-]* | trigger: | history:[!-]* | history: | status:[!-]* | status:) _spikewatch_offer "$(_spikewatch_targets "$1")" "$word" ;;
	list:* | prune:* | reload:* | top:* | *:-*) _spikewatch_offer "$(_spikewatch_options "$1" "$command")" "$word" ;;
	recover:*) _spikewatch_files "$word" ;;
	export:*/*) _spikewatch_files "$word" ;;
	export:*) _spikewatch_offer "last $(_spikewatch_ids "$directory")" "$word" ;;
	replay:*)
		_spikewatch_files "$word"
		_spikewatch_offer "last $(_spikewatch_ids "$directory")" "$word"
		;;
	show:*/* | report:*/* | diff:*/*) _spikewatch_files "$word" -d ;;
	show:* | report:* | diff:*) _spikewatch_offer "last $(_spikewatch_ids "$directory")" "$word" ;;
	verify:*)
		_spikewatch_files "$word"
		_spikewatch_offer "$(_spikewatch_ids "$directory" | sed "s|^|$directory/|")" "$word"
		;;
	esac
}

_spikewatchd() {
	COMPREPLY=()
	_spikewatch_value "$3" "$2" && return
	case $3:$2 in
	*:-*) _spikewatch_offer "$(_spikewatch_options "$1")" "$2" ;;
	--check:*) _spikewatch_files "$2" ;;
	*) _spikewatch_offer "$(_spikewatch_options "$1")" "$2" ;;
	esac
}

complete -F _spikewatch spikewatch
complete -F _spikewatchd spikewatchd
