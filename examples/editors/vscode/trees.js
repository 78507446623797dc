// The views "Marks" and "Previous Values": places of the history in trees, each of which can be gone to.
'use strict';

/** A tree of places. */
class Places {
    constructor(vscode) {
        this.vscode = vscode;
        this.places = [];
        this.changed = new vscode.EventEmitter();
        this.onDidChangeTreeData = this.changed.event;
    }

    set(places) {
        this.places = places;
        this.changed.fire();
    }

    getChildren(parent) {
        return parent ? parent.children || [] : this.places;
    }

    getTreeItem(place) {
        const { None, Expanded } = this.vscode.TreeItemCollapsibleState;
        const item = new this.vscode.TreeItem(place.label, place.children ? Expanded : None);
        item.description = place.description;
        item.tooltip = place.tooltip;
        item.contextValue = place.kind;
        if (place.position) {
            item.command = { command: 'contraflow.seek', title: 'Go there', arguments: [place.position] };
        } else if (place.more) {
            item.command = { command: 'contraflow.earlierWriters', title: 'Show earlier ones', arguments: [place] };
        }
        return item;
    }
}

/** The writers of values, latest first: a root for each value. */
class PreviousValues extends Places {
    /** Adds a value, whose writers are added later. */
    begin(name, ask) {
        const root = { kind: 'value', label: name, description: '', children: [], ask };
        this.set([root, ...this.places.filter((each) => each.label !== name)]);
        return root;
    }

    /** Adds writers to a value. */
    add(root, answer) {
        const writer = (each) => ({
            kind: 'writer',
            label: each.after,
            description: `${each.function}${each.line ? `:${each.line}` : ''}, was ${each.before}`,
            tooltip: `${each.before} → ${each.after}\nposition ${each.position}, thread ${each.thread}, ${each.address}`,
            position: each.position,
        });
        const known = root.children.filter((each) => !each.more);
        root.children = [...known, ...answer.writers.map(writer)];
        const last = answer.writers[answer.writers.length - 1];
        if (answer.end) {
            root.children.push({ kind: 'end', label: answer.end });
        } else if (last) {
            root.children.push({ kind: 'more', label: 'Earlier…', more: { root, from: last.position } });
        }
        root.description = `${root.children.filter((each) => each.kind === 'writer').length} writes`;
        this.changed.fire();
    }
}

/** The positions that the user named. */
class Marks extends Places {
    show(marks) {
        this.set(marks.map(({ name, position, share }) => ({ kind: 'mark', name, label: name, description: position, position, share })));
    }
}

module.exports = { PreviousValues, Marks };
